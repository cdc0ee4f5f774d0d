"""The tests object to code that is wrong: each mutant, a mistake made by hand in the code under test, is killed.

A mutant names its file, the text before and after, and the tests that are to notice. Each is run in a process that
imports posttrain from a folder of links with the one file changed, so the checkout stays as it is; a kill is a test
that objects, never code that cannot be imported or run. That the same tests pass without the mistake is a test too.

Mutants that take a model to see are slow (`make test-slow`); that each still fits its file is always checked. A
survivor is a gap in the laws' tests: close it there. What is listed is not all that can go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.laws.mutants.learner import LEARNER
from tests.laws.mutants.losses import LOSSES
from tests.laws.mutants.mutant import SOURCE, Mistake, Mutant
from tests.laws.mutants.rewards import REWARDS
from tests.laws.mutants.runs import Nursery, nursery
from tests.laws.mutants.sampling import DRAWING
from tests.laws.mutants.tree import plant
from tests.laws.mutants.with_models import WITH_MODELS

QUICK: tuple[Mutant, ...] = (*LOSSES, *REWARDS, *LEARNER, *DRAWING)
ALL = (*QUICK, *WITH_MODELS)


@pytest.fixture(scope="session")
def quick() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.fixture(scope="session")
def with_models() -> Iterator[Nursery]:
    with nursery("with_models") as found:
        yield found


def assert_killed(mutant: Mutant, runs: Nursery, folder: Path) -> None:
    result = runs.run(plant(folder, mutant), mutant.killers)
    assert result.killed, f"{mutant.name} survives {', '.join(mutant.killers)}: {result.output}"


def assert_all_pass(mutants: Sequence[Mutant], runs: Nursery, folder: Path) -> None:
    killers = dict.fromkeys(killer for mutant in mutants for killer in mutant.killers)
    result = runs.run(plant(folder, None), list(killers))
    assert result.passed, result.output


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_mutant_is_killed(mutant: Mutant, quick: Nursery, tmp_path: Path) -> None:
    assert_killed(mutant, quick, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", WITH_MODELS, ids=lambda mutant: mutant.name)
def test_mutant_of_what_takes_a_model_is_killed(mutant: Mutant, with_models: Nursery, tmp_path: Path) -> None:
    assert_killed(mutant, with_models, tmp_path)


def test_killers_pass_without_a_mistake(quick: Nursery, tmp_path: Path) -> None:
    assert_all_pass(QUICK, quick, tmp_path)


@pytest.mark.slow
def test_killers_that_take_a_model_pass_without_a_mistake(with_models: Nursery, tmp_path: Path) -> None:
    assert_all_pass(WITH_MODELS, with_models, tmp_path)


def test_every_mutant_fits_its_file_and_is_code() -> None:
    misfits = {mutant.name: count for mutant in ALL if (count := mutant.source.count(mutant.before)) != 1}
    assert misfits == {}, "the text before has to occur once"
    for mutant in ALL:
        assert mutant.mutated != mutant.source
        compile(mutant.mutated, mutant.file, "exec")


def test_list_is_long_has_distinct_names_and_has_every_kind_of_mistake() -> None:
    assert len(QUICK) >= 100
    assert len({mutant.name for mutant in ALL}) == len(ALL)
    assert {mutant.mistake for mutant in QUICK} == set(Mistake)


WITHOUT = {"losses/__init__.py", "losses/base.py", "rewards/__init__.py", "rewards/step_tokens.py"}
"""They compute nothing: two docstrings, the seam of losses, and a row of tokens and the way back."""


def test_every_file_of_losses_and_rewards_has_a_mutant() -> None:
    files = {f"{room}/{path.name}" for room in ("losses", "rewards") for path in (SOURCE / room).glob("*.py")}
    assert files - WITHOUT <= {mutant.file for mutant in QUICK}


RATIO = LOSSES[0]


@pytest.mark.parametrize("after", ["import no_such_module", "raise RuntimeError", "no_such_name"])
def test_code_that_cannot_be_imported_kills_nothing(after: str, quick: Nursery, tmp_path: Path) -> None:
    broken = Mutant("broken", RATIO.mistake, RATIO.file, "MAX_LOG_RATIO = 20.0", after, RATIO.killers)
    result = quick.run(plant(tmp_path, broken), broken.killers)
    assert not result.killed
    assert not result.passed


def test_code_that_breaks_where_it_is_called_kills_nothing(quick: Nursery, tmp_path: Path) -> None:
    broken = Mutant("broken", RATIO.mistake, RATIO.file, RATIO.before, "inputs.no_such_field", RATIO.killers)
    assert not quick.run(plant(tmp_path, broken), broken.killers).killed


def test_change_without_effect_survives(quick: Nursery, tmp_path: Path) -> None:
    same = Mutant("same", RATIO.mistake, RATIO.file, RATIO.before, f"({RATIO.before})", RATIO.killers)
    assert quick.run(plant(tmp_path, same), same.killers).passed
