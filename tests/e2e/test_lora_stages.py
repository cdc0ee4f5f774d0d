"""LoRA through the real loop: SFT, then RL with a KL to its begin; killed, resumed, replayed, and exported twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.e2e import test_kill_and_resume as commands
from tests.e2e.test_rl_stages import Killed, Watch, records, same, weights

from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.types import Limits
from posttrain.domains.function import FunctionDomain
from posttrain.models.catalog import resolve
from posttrain.run.config import RunConfig
from posttrain.run.load import parse
from posttrain.run.parts import Parts
from posttrain.run.replay import replay
from posttrain.run.train import resume_run, start_run

torch.set_num_threads(1)

LORA: dict[str, Any] = {"rank": 4, "alpha": 8}
SFT: dict[str, Any] = {"kind": "sft", "max_steps": 3, "demonstrations": 12, "demonstrations_per_step": 4}
RL: dict[str, Any] = {"kind": "rl", "steps": 3, "groups_per_step": 4, "group_size": 4, "kl": {"coefficient": 0.1}}


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def coins() -> dict[str, FunctionDomain]:
    """Replies of even length are good, and one of them is shown."""
    return {
        "coins": FunctionDomain(
            [(f"Say {number}.", "") for number in range(200)],
            lambda task, reply: len(reply) % 2 == 0,
            name="coins",
            demonstrate=lambda task: "four",
            limits=Limits(max_new_tokens=4),
        )
    }


def configuration(**learner: Any) -> RunConfig:
    return parse(
        {
            "model": "seedling-random",
            "domains": {"coins": {}},
            "stages": [{**stage, "optimizer": {"learning_rate": 1e-2}} for stage in (SFT, RL)],
            "evaluation": {"tasks": 4, "samples": 1},
            "evaluate_base": False,
            "engine": {"processes": 0},
            "learner": {"processes": 0, "dtype": "float32", **learner},
            "checkpoints": {"every_steps": 2, "keep": 9},
        }
    )


def adapter(folder: Path) -> dict[str, Any]:
    return dict(load_file(folder / "adapter" / "adapter_model.safetensors"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    start_run(configuration(lora=LORA), folder, Watch(), coins())
    return folder


@pytest.mark.parametrize("kill_at", [1, 3, 4, 6])
def test_a_killed_run_ends_with_the_adapter_of_one_that_was_not(whole: Path, tmp_path: Path, kill_at: int) -> None:
    with pytest.raises(Killed):
        start_run(configuration(lora=LORA), tmp_path / "run", Watch(kill_at), coins())
    resume_run(tmp_path / "run", Watch(), coins())
    assert same(adapter(tmp_path / "run"), adapter(whole))
    assert same(weights(tmp_path / "run"), weights(whole))


def test_the_model_is_an_ordinary_folder_and_peft_makes_the_same_of_base_and_adapter(whole: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(resolve("seedling-random"), dtype=torch.float32)
    ids = torch.tensor([[1, 5, 9, 2, 30]])
    with torch.no_grad():
        untrained = base(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(whole / "model")(ids).logits
        adapted = PeftModel.from_pretrained(base, str(whole / "adapter"))(ids).logits
    assert torch.allclose(adapted, merged, rtol=0, atol=1e-5)
    assert (merged - untrained).abs().max() > 1e-2


def test_every_published_version_arrives_and_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`publish` itself refuses weights that did not arrive; here: that there were such publications, first the base."""
    seen: list[str] = []
    publish = Parts.publish

    async def watched(self: Parts, version: int) -> None:
        await publish(self, version)
        seen.append(self.fingerprint)

    monkeypatch.setattr(Parts, "publish", watched)
    start_run(configuration(lora=LORA), tmp_path / "run", Watch(), coins())
    assert len(seen) == len(set(seen)) == 5, "the base, after SFT, and after each of three RL steps"
    assert load_file(resolve("seedling-random") / "model.safetensors").keys() == weights(tmp_path / "run").keys()
    assert seen[0] == folder_fingerprint(resolve("seedling-random"))
    assert seen[-1] == folder_fingerprint(tmp_path / "run" / "model")


def test_rl_begins_where_sft_ended_and_compares_with_that(whole: Path) -> None:
    of_rl = [record.values for record in records(whole) if record.stage_index == 1]
    assert of_rl[0]["mismatch_kl"] < 1e-6, "the engine samples from what the learner computes with"
    assert of_rl[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert of_rl[2]["kl"] > 1e-5


def test_a_replayed_step_gives_what_was_recorded(whole: Path) -> None:
    assert replay(whole, 2, None, Watch(), coins()).same is True


def test_no_adapter_is_written_where_all_weights_are_trained(tmp_path: Path) -> None:
    start_run(configuration(), tmp_path / "run", Watch(), coins())
    assert not (tmp_path / "run" / "adapter").exists()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_run_killed_by_the_system_ends_with_the_same_parameters(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIG", commands.CONFIG.replace("[learner]", "[learner]\nlora = {{ rank = 4 }}"))
    commands.check(tmp_path, kills=[4, 9], processes=processes)
    assert np.any(adapter(tmp_path / "killed")[next(iter(adapter(tmp_path / "killed")))])
    assert same(adapter(tmp_path / "killed"), adapter(tmp_path / "whole"))
