"""Names to components: entry points, references, options, and the sentences for what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from posttrain.core.errors import ConfigError, UnknownNameError
from posttrain.core.registry import KINDS, accepts, build, check, fill, find, names, unknown

PLUGIN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Cube:
    edge_mm: int
    label: str = "cube"

    def __post_init__(self):
        if self.edge_mm <= 0:
            raise ValueError("a cube has an edge")
"""


@dataclass(frozen=True)
class Box:
    width_mm: int
    lengths_mm: tuple[float, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if self.width_mm <= 0:
            raise ValueError("a box has a width")


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "plugin.py"
    path.write_text(PLUGIN)
    return f"{path}:Cube"


def test_built_in_components_are_found_by_the_public_door() -> None:
    assert "clipped_policy_gradient" in names("loss")
    assert all(names(kind) == sorted(names(kind)) and names(kind) for kind in KINDS)


def test_component_in_a_file_is_built_from_its_reference(plugin: str) -> None:
    cube = build("domain", {"name": plugin, "edge_mm": 3})
    assert (cube.edge_mm, cube.label) == (3, "cube")
    assert find("domain", plugin).__name__ == "Cube"


def test_component_in_a_module_is_found_by_its_reference() -> None:
    assert find("domain", "fractions:Fraction").__name__ == "Fraction"


@pytest.mark.parametrize("reference", ["no/such/file.py:Cube", "no_such_module:Cube", "fractions:Fractoin"])
def test_reference_that_leads_nowhere_is_an_unknown_name(reference: str) -> None:
    with pytest.raises(UnknownNameError):
        find("domain", reference)


def test_misspelt_object_of_a_module_is_suggested() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'Fraction'"):
        find("domain", "fractions:Fractoin")


def test_unknown_name_lists_the_known_ones_and_the_closest() -> None:
    with pytest.raises(UnknownNameError, match=r"no loss 'supervized'; did you mean 'supervised'.*clipped_policy"):
        find("loss", "supervized")
    assert unknown("thing", "x", []) == "there is no thing 'x' (known: none)"


@pytest.mark.parametrize("spec", [{}, {"name": 3}])
def test_component_without_a_name_is_refused(spec: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="a loss is named by a string"):
        build("loss", spec)


def test_options_are_converted_to_their_annotations() -> None:
    box = fill(Box, {"width_mm": 2, "lengths_mm": [1, 2.5], "label": None}, where="box")
    assert box == Box(2, (1.0, 2.5), None)


def test_every_bad_option_has_its_sentence_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        fill(Box, {"widht_mm": 2, "lengths_mm": [1, "wide"]}, where="box")
    message = str(caught.value)
    assert "no option of box 'widht_mm'; did you mean 'width_mm'" in message
    assert "box needs the option 'width_mm'" in message
    assert "box: lengths_mm.1: " in message


def test_refusal_of_the_component_itself_is_a_config_error(plugin: str) -> None:
    with pytest.raises(ConfigError, match="box: a box has a width"):
        fill(Box, {"width_mm": 0}, where="box")
    with pytest.raises(ConfigError, match="a cube has an edge"):
        build("domain", {"name": plugin, "edge_mm": -1})


def test_function_can_be_filled_like_a_class() -> None:
    def half(number: int, *, of: int = 2) -> float:
        return number / of

    assert fill(half, {"number": 3}, where="half") == 1.5


def test_build_does_not_change_the_options_it_is_given(plugin: str) -> None:
    spec = {"name": plugin, "edge_mm": 3}
    build("domain", spec)
    assert spec == {"name": plugin, "edge_mm": 3}


def test_options_are_checked_without_building_anything(plugin: str) -> None:
    check("domain", {"name": plugin, "edge_mm": -1})  # only the component itself can refuse it
    with pytest.raises(ConfigError, match="needs the option 'edge_mm'"):
        check("domain", plugin)
    assert accepts("domain", plugin, "label")
    assert not accepts("domain", plugin, "lable")
