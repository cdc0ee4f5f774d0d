from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.core.errors import ConfigError
from posttrain.run.config import SftStage
from posttrain.run.load import dump, load, parse
from posttrain.run.rl_stage import RlStage

TEXT = """
model = "seedling"
[domains.arithmetic]
level = 2
[[stages]]
kind = "sft"
max_steps = 3
plateau = { patience = 1 }
[[stages]]
kind = "rl"
steps = 5
loss = { name = "clipped_policy_gradient", clip_low = 0.1 }
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "run.toml"
    file.write_text(TEXT)
    return file


def test_a_file_becomes_typed_stages(path: Path) -> None:
    config = load(path)
    sft, rl = config.stages
    assert isinstance(sft, SftStage)
    assert isinstance(rl, RlStage)
    assert sft.plateau is not None
    assert sft.plateau.patience == 1
    assert rl.loss == {"name": "clipped_policy_gradient", "clip_low": 0.1}
    assert config.domains["arithmetic"].level == 2


def test_what_is_dumped_is_read_back_equal(path: Path) -> None:
    config = load(path)
    assert parse(dump(config)) == config


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("modle=3", "did you mean 'model'"),
        ("domains.arithmetic.lvel=3", "did you mean 'level'"),
        ("stages.rl.stps=3", "did you mean 'steps'"),
        ("stages.0.max_stepz=3", "did you mean 'max_steps'"),
        ("stages.sft.plateau.patiense=3", "did you mean 'patience'"),
        ("evaluation.task=3", "did you mean 'tasks'"),
        ("stages.rI.steps=3", "there is no entry 'rI'"),
        ("stages.rl.steps=0", "steps must be at least 1"),
        ("stages.rl.temperature=0", "temperature 0 cannot be trained on"),
        ("stages.rl.temperature=nan", "temperature must be a finite number"),
        ("domains.arithmetic.weight=-1", "weight must be above 0"),
        ("domains.arithmetic.weight=nan", "weight must be above 0"),
        ("stages.rl.preset=grop", "did you mean 'grpo'"),
        ("stages.rl.kl={place = 'reward', estimator = 'k3'}", "has another gradient"),
        ("stages.rl.steps=many", "stages.1.steps"),
        ("stages.rl.max_staleness=-1", "max_staleness must be at least 0"),
        ("learner.dtype=float8", "learner.dtype"),
        ("engine.options={dtype = 'float64'}", "the engine's dtype is float64 and the learner's"),
        ("model.name=3", "which is a plain value"),
        ("nonsense", "key.key=value"),
        ("stages.1.name=sft", "stage names must differ"),
    ],
)
def test_every_mistake_is_a_sentence(path: Path, override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        load(path, [override])
    assert sentence in str(caught.value)


def test_overrides_are_toml_values_and_failing_that_strings(path: Path) -> None:
    config = load(path, ["seed=7", "model=some/folder", "stages.rl.optimizer={learning_rate = 1e-3}"])
    assert config.seed == 7
    assert config.model == "some/folder"
    assert config.stages[1].optimizer == {"learning_rate": 1e-3}


def test_the_engine_may_repeat_the_learners_dtype(path: Path) -> None:
    assert load(path, ["engine.options.dtype=float32", "learner.dtype=float32"]).learner.dtype == "float32"


def test_a_missing_file_a_binary_file_and_broken_toml_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no configuration file"):
        load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file"):
        load(tmp_path / "binary.toml")
    (tmp_path / "broken.toml").write_text("model = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path / "broken.toml")


def test_a_run_without_domains_or_stages_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs 'domains'"):
        parse({"model": "m", "stages": []})
    with pytest.raises(ConfigError, match="at least one stage"):
        parse({"model": "m", "domains": {"arithmetic": {}}, "stages": []})
