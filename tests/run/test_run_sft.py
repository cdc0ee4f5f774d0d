from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.run.sft_parts import sft_stage

from posttrain.core.errors import ConfigError
from posttrain.learn.samples import demonstration_sample
from posttrain.run.config import PlateauConfig, SftStage
from posttrain.run.load import dump, parse
from posttrain.run.rows import Rows
from posttrain.run.sft import Plateau, SftLoop

MINIMAL = {"model": "m", "domains": {"arithmetic": {}}}


def parsed(**options: Any) -> SftStage:
    (stage,) = parse({**MINIMAL, "stages": [{"kind": "sft", **options}]}).stages
    assert isinstance(stage, SftStage)
    return stage


def loop(stage: SftStage, num_rows: int, seed: int = 0) -> SftLoop:
    """Over rows named 0, 1, 2 …; it has no learner and can take no step."""
    ones = np.ones(2, np.int32)
    samples = [demonstration_sample(str(n), "d", ones, np.array([False, True])) for n in range(num_rows)]
    parts: Any = type("Seed", (), {"config": type("Config", (), {"seed": seed})})
    nobody: Any = None
    return SftLoop(stage, parts, nobody, Rows(samples, []), first_step=0, plateau=Plateau(), on_evaluation=nobody)


def names(of: SftLoop, steps: range) -> list[str]:
    return [sample.trajectory_id for step in steps for sample in of._batch(step)]


def test_every_row_is_learned_once_in_each_epoch_whatever_the_step_size() -> None:
    seen = names(loop(sft_stage(demonstrations_per_step=4), 10), range(5))
    assert sorted(seen[:10]) == sorted(seen[10:]) == [str(n) for n in range(10)]
    assert seen[:10] != seen[10:]
    assert seen == names(loop(sft_stage(demonstrations_per_step=5), 10), range(4))


def test_the_order_depends_on_the_seed_and_the_stage_alone() -> None:
    stage = sft_stage(demonstrations_per_step=10)
    first = names(loop(stage, 10), range(1))
    assert first == names(loop(stage, 10), range(1))
    assert first != names(loop(stage, 10, seed=1), range(1))
    assert first != names(loop(sft_stage(name="other", demonstrations_per_step=10), 10), range(1))


def test_a_step_may_go_over_the_rows_several_times() -> None:
    seen = names(loop(sft_stage(demonstrations_per_step=7), 2), range(2))
    assert [sorted(seen[place : place + 2]) for place in range(0, 14, 2)] == [["0", "1"]] * 7


def test_validation_is_due_at_its_steps_and_at_the_end() -> None:
    stage = sft_stage(max_steps=5, validation=4, validate_every_steps=2)
    assert [step for step in range(1, 6) if stage.validates_after(step)] == [2, 4, 5]
    assert [step for step in range(1, 6) if sft_stage(max_steps=5, validation=4).validates_after(step)] == [5]
    assert not sft_stage(max_steps=5).validates_after(5)


def test_a_plateau_rule_measures_at_its_own_steps_on_its_own_rows() -> None:
    stage = sft_stage(max_steps=5, plateau=PlateauConfig(every_steps=2, validation_demonstrations=9))
    assert [step for step in range(1, 6) if stage.validates_after(step)] == [2, 4]
    assert stage.num_validation == 9


def test_evaluation_during_a_stage_leaves_its_end_to_the_one_behind_it() -> None:
    stage = sft_stage(max_steps=6, evaluate_every_steps=2)
    assert [step for step in range(1, 7) if stage.evaluates_after(step)] == [2, 4]
    assert not any(sft_stage(max_steps=6).evaluates_after(step) for step in range(1, 7))


def test_the_rule_stops_after_measurements_in_a_row_without_improvement() -> None:
    rule, plateau = PlateauConfig(patience=2, min_improvement=0.1), Plateau()
    assert [plateau.reached(loss, rule) for loss in (1.0, 0.95, 0.8, 0.79, 0.81)] == [False, False, False, False, True]


def test_files_alone_are_stated_as_no_demonstrations() -> None:
    stage = parsed(data=["chats.jsonl"], demonstrations=0)
    assert stage.data == ["chats.jsonl"]
    config = parse({**MINIMAL, "stages": [{"kind": "sft", "source": "self", "attempts": 2}]})
    assert parse(dump(config)) == config


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"demonstrations": 0}, "leaves nothing to learn from"),
        ({"demonstrations": 0, "data": ["a"], "source": "self"}, "needs tasks to sample"),
        ({"demonstrations": -1}, "demonstrations must be at least 0"),
        ({"source": "others"}, "stages.0.source"),
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"max_bad_share": 1.5}, r"max_bad_share must lie in \[0, 1\]"),
        ({"max_bad_share": float("nan")}, "max_bad_share"),
        ({"validate_every_steps": 5}, "needs rows to validate on"),
        ({"validation": 8, "plateau": {}}, "a plateau rule states its own validation"),
        ({"plateau": {"every_steps": 0}}, "every_steps must be at least 1"),
        ({"data": "a.jsonl"}, "stages.0.data"),
        ({"dta": ["a.jsonl"]}, "did you mean 'data'"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parsed(**options)
