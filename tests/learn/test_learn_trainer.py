"""A trainer's life: stages, steps, references, failures, exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.learn.parts import (
    ENTROPY_BONUS,
    KL_PENALTY,
    POLICY_GRADIENT,
    SUPERVISED,
    replace,
    run_ranks,
    sample,
    some_samples,
    stage_of,
    watching_trainer,
    weights,
    write_tiny_model,
)

from posttrain.core.errors import ConfigError, ModelError, NonFiniteError, StoreError, UnknownNameError, UserError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.protocols import StageSpec, StepControls
from posttrain.learn.trainer import Trainer


def stage(*losses: dict[str, Any], keep_reference: bool = False, **options: Any) -> StageSpec:
    return stage_of(*(losses or (SUPERVISED,)), keep_reference=keep_reference, **{"learning_rate": 1e-2, **options})


@pytest.fixture
def trainer(tiny_model: Path) -> Trainer:
    trainer = Trainer(tiny_model, dtype="float32")
    trainer.begin_stage(stage())
    return trainer


def test_supervised_steps_raise_the_likelihood_of_what_was_shown(trainer: Trainer) -> None:
    losses = [trainer.step(some_samples()).loss for _ in range(30)]
    assert losses[-1] < losses[0] / 2


def test_policy_gradient_raises_what_was_good_and_lowers_what_was_bad(trainer: Trainer) -> None:
    trainer.begin_stage(stage(POLICY_GRADIENT, learning_rate=1e-3))
    good, bad = sample([1, 2], [3], name="good", group="g"), sample([1, 2], [4], name="bad", group="g")
    pair = [replace(good, advantages=np.full(3, 1, np.float32)), replace(bad, advantages=np.full(3, -1, np.float32))]
    before = [float(row[-1]) for row in trainer.logprobs(pair)]
    rows = trainer.logprobs(pair)
    trainer.step([replace(s, behavior_logprobs=row) for s, row in zip(pair, rows, strict=True)])
    after = [float(row[-1]) for row in trainer.logprobs(pair)]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_same_steps_give_the_same_weights(tiny_model: Path) -> None:
    ends = []
    for seed in range(2):
        torch.manual_seed(seed)
        trainer = Trainer(tiny_model, dtype="bfloat16")
        trainer.begin_stage(stage())
        for _ in range(3):
            trainer.step(some_samples())
        ends.append(weights(trainer))
    assert torch.equal(*ends)


def test_step_before_a_stage_is_refused(tiny_model: Path) -> None:
    with pytest.raises(UserError, match="call begin_stage first"):
        Trainer(tiny_model, dtype="float32").step(some_samples())


def test_unknown_loss_and_option_are_refused_and_the_old_stage_stays(trainer: Trainer) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'supervised'"):
        trainer.begin_stage(stage({"name": "supervise"}))
    with pytest.raises(ConfigError, match="learning_rates"):
        trainer.begin_stage(StageSpec([SUPERVISED], {"learning_rates": 1.0}, total_steps=1))
    assert trainer.step(some_samples()).num_loss_tokens > 0


def test_stage_adds_up_its_losses_and_reports_each(trainer: Trainer) -> None:
    trainer.begin_stage(stage(POLICY_GRADIENT, KL_PENALTY, ENTROPY_BONUS, learning_rate=0.0))
    metrics = trainer.step(some_samples())
    terms = [metrics.values[name] for name in ("policy_loss", "kl_loss", "entropy_loss")]
    assert all(terms)
    assert metrics.loss == pytest.approx(sum(terms))


def test_factor_of_a_step_scales_one_losses_term_and_its_gradient(tiny_model: Path) -> None:
    trainer = watching_trainer(tiny_model, SUPERVISED, ENTROPY_BONUS)
    once, none, thrice = (
        (trainer.step(some_samples(), StepControls(loss_factors={"entropy_bonus": factor})), found(trainer))
        for factor in (1.0, 0.0, 3.0)
    )
    assert thrice[0].values["entropy_loss"] == pytest.approx(3 * once[0].values["entropy_loss"])
    assert thrice[0].values["negative_log_likelihood"] == once[0].values["negative_log_likelihood"]
    assert torch.allclose(thrice[1] - none[1], 3 * (once[1] - none[1]), rtol=0, atol=1e-6)
    assert (once[1] - none[1]).abs().max() > 1e-3


def found(trainer: Trainer) -> torch.Tensor:
    return trainer._memory.gradients[0].clone()


def test_factor_of_a_loss_that_the_stage_does_not_have_is_refused(trainer: Trainer) -> None:
    with pytest.raises(ConfigError, match="no loss of this stage 'entropy_bonus'"):
        trainer.step(some_samples(), StepControls(loss_factors={"entropy_bonus": 2.0}))


def test_further_updates_of_a_step_take_its_rate_and_do_not_move_the_schedule_on(trainer: Trainer) -> None:
    trainer.begin_stage(stage(schedule="linear"))
    further = StepControls(further_update=True)
    halved = StepControls(learning_rate_factor=0.5)
    controls = [StepControls(), further, further, StepControls(), halved]
    rates = [trainer.step(some_samples(), control).learning_rate for control in controls]
    assert rates == pytest.approx([1e-2, 1e-2, 1e-2, 0.99e-2, 0.49e-2])


def test_sample_longer_than_the_context_is_refused(trainer: Trainer) -> None:
    long = sample([1], [2] * 128, name="long")
    for call in (trainer.step, trainer.logprobs):
        with pytest.raises(UserError, match="sample long has 129 tokens and the model's context is 128"):
            call([long])


# ── the reference ─────────────────────────────────────────────────────────────────────────────────────────────


def test_reference_is_the_policy_as_it_was_when_the_stage_began(trainer: Trainer) -> None:
    for _ in range(3):
        trainer.step(some_samples())
    trainer.begin_stage(stage(keep_reference=True))
    start = trainer.logprobs(some_samples())
    for _ in range(3):
        trainer.step(some_samples())
    kept = trainer.logprobs(some_samples(), reference=True)
    moved = trainer.logprobs(some_samples())
    for s, begin, reference, now in zip(some_samples(), start, kept, moved, strict=True):
        assert np.array_equal(begin, reference)
        assert not np.array_equal(now[s.trainable], reference[s.trainable])


def test_reference_that_was_not_kept_is_a_sentence(trainer: Trainer) -> None:
    trainer.begin_stage(stage(keep_reference=True))
    trainer.begin_stage(stage())
    with pytest.raises(UserError, match="keep_reference = true"):
        trainer.logprobs(some_samples(), reference=True)


def test_refreshed_reference_is_the_policy_as_it_is_now(trainer: Trainer) -> None:
    trainer.begin_stage(stage(keep_reference=True))
    trainer.step(some_samples())
    before = trainer.logprobs(some_samples(), reference=True)
    trainer.refresh_reference()
    now, kept = trainer.logprobs(some_samples()), trainer.logprobs(some_samples(), reference=True)
    for old, policy, reference in zip(before, now, kept, strict=True):
        assert np.array_equal(policy, reference)
        assert not np.array_equal(old, reference)
    trainer.begin_stage(stage())
    with pytest.raises(UserError, match="keep_reference = true"):
        trainer.refresh_reference()


def test_loss_that_needs_a_reference_refuses_samples_without(trainer: Trainer) -> None:
    trainer.begin_stage(stage(POLICY_GRADIENT, KL_PENALTY))
    with pytest.raises(UserError, match="samples came without reference_logprobs"):
        trainer.step([replace(s, reference_logprobs=None) for s in some_samples()])


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_loss_that_is_not_finite_names_its_samples_and_changes_nothing(trainer: Trainer, value: float) -> None:
    trainer.begin_stage(stage(POLICY_GRADIENT))
    samples = some_samples()
    trainer.step(samples)
    before = {name: flat.clone() for name, flat in trainer._memory.vectors().items()}
    samples[2] = replace(samples[2], advantages=np.full_like(samples[2].advantages, value))
    with pytest.raises(NonFiniteError, match=r"the loss is not finite for sample a2$"):
        trainer.step(samples)
    for name, flat in trainer._memory.vectors().items():
        assert torch.equal(flat, before[name]), name
    trainer.step(some_samples())


def test_gradient_that_is_not_finite_names_the_steps_samples_and_changes_nothing(trainer: Trainer) -> None:
    trainer.begin_stage(stage(POLICY_GRADIENT))
    before = weights(trainer)
    huge = [replace(s, advantages=np.full_like(s.advantages, 1e38)) for s in some_samples()]
    with pytest.raises(NonFiniteError, match=r"gradient's norm is (inf|nan), of samples a0, .* and 4 more"):
        trainer.step(huge)
    assert torch.equal(weights(trainer), before)


def test_all_ranks_refuse_a_loss_that_is_not_finite_in_one(tiny_model: Path) -> None:
    samples = some_samples()
    samples[2] = replace(samples[2], advantages=np.full_like(samples[2].advantages, np.nan))

    def fail_then_go_on(rank: int, rendezvous: str) -> tuple[str, float]:
        trainer = Trainer(tiny_model, dtype="float32", rank=rank, world_size=2, rendezvous=rendezvous)
        trainer.begin_stage(stage(POLICY_GRADIENT))
        with pytest.raises(NonFiniteError) as caught:
            trainer.step(samples)
        return str(caught.value), trainer.step(some_samples()).loss

    first, second = run_ranks(2, fail_then_go_on)
    assert first == second
    assert first[0] == "the loss is not finite for sample a2"


# ── what it writes ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
def test_export_loads_as_the_same_policy(tmp_path: Path, dtype: str, tied: bool) -> None:
    source = write_tiny_model(tmp_path / "source", tie_word_embeddings=tied)
    trainer = Trainer(source, dtype=dtype)
    trainer.begin_stage(stage())
    trainer.step(some_samples())
    assert trainer.export(tmp_path / "out") == folder_fingerprint(tmp_path / "out")
    again = Trainer(tmp_path / "out", dtype=dtype)
    assert torch.equal(weights(again), weights(trainer))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype


def test_export_copies_companions_once_and_weights_every_time(tmp_path: Path) -> None:
    source = write_tiny_model(tmp_path / "source")
    (source / "tokenizer.json").write_text("{}")
    (source / "model.safetensors.index.json").write_text("{}")
    trainer = Trainer(source, dtype="float32")
    trainer.begin_stage(stage())
    out = tmp_path / "out"
    first = trainer.export(out)
    assert {path.name for path in out.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    config_written = (out / "config.json").stat().st_mtime_ns
    trainer.step(some_samples())
    assert trainer.export(out) != first
    assert (out / "config.json").stat().st_mtime_ns == config_written


def test_open_export_is_not_changed_under_its_reader(trainer: Trainer, tmp_path: Path) -> None:
    trainer.export(tmp_path / "out")
    with (tmp_path / "out" / "model.safetensors").open("rb") as reader:
        before = reader.read()
        trainer.step(some_samples())
        trainer.export(tmp_path / "out")
        reader.seek(0)
        assert reader.read() == before


def test_model_whose_parameters_were_renamed_at_load_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    for path in tiny_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    renamed = {
        name.replace("model.norm", "model.final_norm"): t
        for name, t in load_file(tmp_path / "model.safetensors").items()
    }
    save_file({**renamed}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    from posttrain.learn.export import refuse_renamed

    with pytest.raises(ModelError, match=r"1 parameters, 'model.norm.weight' the first"):
        refuse_renamed(tmp_path, load_file(tiny_model / "model.safetensors"))


def test_checkpoint_of_another_dtype_or_model_is_refused(trainer: Trainer, tiny_model: Path, tmp_path: Path) -> None:
    trainer.save(tmp_path / "at")
    with pytest.raises(ConfigError, match="saved by a float32 trainer and this one computes in bfloat16"):
        Trainer(tiny_model, dtype="bfloat16").load(tmp_path / "at")
    other = Trainer(write_tiny_model(tmp_path / "other", intermediate_size=48), dtype="float32")
    with pytest.raises(StoreError, match="is of another model"):
        other.load(tmp_path / "at")
    with pytest.raises(StoreError, match=r"it has no trainer.json"):
        trainer.load(tmp_path)


def test_checkpoint_before_any_stage_holds_the_weights(tiny_model: Path, tmp_path: Path, trainer: Trainer) -> None:
    trainer.step(some_samples())
    trainer.save(tmp_path / "mid")
    bare = Trainer(tiny_model, dtype="float32")
    bare.save(tmp_path / "bare")
    trainer.load(tmp_path / "bare")
    assert torch.equal(weights(trainer), weights(bare))
    with pytest.raises(UserError, match="call begin_stage first"):
        trainer.step(some_samples())
