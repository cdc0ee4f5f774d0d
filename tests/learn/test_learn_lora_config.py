from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.learn.parts import write_tiny_model

from posttrain.core.errors import ConfigError
from posttrain.learn.lora_config import LoraConfig, require_peft
from posttrain.learn.trainer import Trainer
from posttrain.run.config import RunConfig
from posttrain.run.load import dump, load, parse
from posttrain.run.parts import make_domains
from posttrain.run.train import check

TEXT = """
model = "seedling-random"
[domains.arithmetic]
[[stages]]
kind = "sft"
[learner]
lora = { rank = 4 }
"""


def configuration(tmp_path: Path, *overrides: str) -> RunConfig:
    (tmp_path / "run.toml").write_text(TEXT)
    return load(tmp_path / "run.toml", overrides)


def test_absent_is_full_fine_tuning_and_empty_is_every_default(tmp_path: Path) -> None:
    assert configuration(tmp_path).learner.lora == LoraConfig(rank=4, alpha=32.0, targets=[])
    assert configuration(tmp_path, "learner.lora={}").learner.lora == LoraConfig()
    assert configuration(tmp_path, "learner={}").learner.lora is None


def test_what_is_dumped_is_read_back_equal(tmp_path: Path) -> None:
    config = configuration(tmp_path, "learner.lora.targets=['q_proj']", "learner.lora.alpha=8")
    assert parse(dump(config)) == config


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("rank=0", "rank must be at least 1, not 0"),
        ("rank=1.5", "learner.lora.rank"),
        ("alpha=0", "alpha must be a finite number above 0, not 0.0"),
        ("alpha=-2", "alpha must be a finite number above 0, not -2.0"),
        ("alpha=nan", "alpha must be a finite number above 0, not nan"),
        ("alpha=inf", "alpha must be a finite number above 0, not inf"),
        ("targets='q_proj'", "learner.lora.targets"),
        ("rnak=3", "did you mean 'rank'"),
        ("dropout=0.1", "no key learner.lora 'dropout'"),
    ],
)
def test_every_mistake_is_a_sentence(tmp_path: Path, override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        configuration(tmp_path, f"learner.lora.{override}")
    assert sentence in str(caught.value)


def test_without_peft_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else found(name))
    sentence = r"^learner.lora needs the package peft: pip install peft \(posttrain's extra 'lora'\)$"
    config = configuration(tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        check(config, make_domains(config.domains))
    with pytest.raises(ConfigError, match=sentence):
        Trainer(write_tiny_model(tmp_path / "model"), dtype="float32", lora=LoraConfig())
    check(configuration(tmp_path, "learner={}"), make_domains(config.domains))
    monkeypatch.undo()
    require_peft()


def test_peft_is_imported_for_an_adapter_alone() -> None:
    program = "import sys, posttrain.learn.trainer, posttrain.run.train; sys.exit('peft' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
