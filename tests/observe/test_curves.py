from __future__ import annotations

import pytest

from posttrain.observe.curves import charts, time_shares
from posttrain.store.metrics import MetricsRecord


def record(stage_index: int, step: int, **values: float) -> MetricsRecord:
    return MetricsRecord(stage_index, ["sft", "rl"][stage_index], step, 0.0, values)


def test_missing_and_extra_names_do_no_harm() -> None:
    records = [record(0, 1, loss=2.0, unheard_of=1.0), record(1, 1), record(1, 2, **{"pass/words": 0.5})]
    assert [chart.title for chart in charts(records, ["words"])] == ["Pass rate in training", "Loss, sft"]
    assert charts([], []) == []


def test_reward_has_a_chart_where_it_is_not_the_pass_rate() -> None:
    same = [record(1, step, **{"pass/words": 0.5, "reward/words": 0.5}) for step in (1, 2)]
    other = [record(1, step, **{"pass/words": 0.5, "reward/words": -0.7}) for step in (1, 2)]
    assert [chart.title for chart in charts(same, ["words"])] == ["Pass rate in training"]
    assert [chart.title for chart in charts(other, ["words"])] == ["Pass rate in training", "Reward"]


def test_what_two_stages_measured_is_two_lines_one_after_the_other() -> None:
    records = [record(stage, step, tokens_per_s=100.0 * (stage + 1)) for stage in (0, 1) for step in (1, 2, 3)]
    (chart,) = charts(records, [])
    assert [(name, value) for name, _, value in chart.legend] == [
        ("tokens per s, sft", "100"),
        ("tokens per s, rl", "200"),
    ]
    assert "tokens per s, rl, step 4: 200" in chart.svg


def test_time_is_split_by_phase_and_the_rest_is_other() -> None:
    records = [record(1, 1, **{"time/generate_s": 5.0, "time/learn_s": 3.0, "time/step_s": 10.0}), record(1, 2)]
    shares = time_shares(records)
    assert [(share.phase, share.seconds) for share in shares] == [("generate", 5.0), ("learn", 3.0), ("other", 2.0)]
    assert sum(share.share for share in shares) == pytest.approx(1.0)


def test_phases_that_overlap_still_share_one_whole() -> None:
    records = [record(1, 1, **{"time/generate_s": 8.0, "time/learn_s": 8.0, "time/step_s": 10.0})]
    assert sum(share.share for share in time_shares(records)) == pytest.approx(1.0)
    assert [share.phase for share in time_shares(records)] == ["generate", "learn"]


def test_no_times_are_no_shares() -> None:
    assert time_shares([record(1, 1, loss=1.0)]) == []


def test_parts_of_a_reward_have_a_chart_and_their_weights_one_where_they_moved() -> None:
    def step(number: int, weight: float) -> MetricsRecord:
        return record(1, number, **{"reward/words/format": 0.5, "reward_weight/words/format": weight})

    parts, weights = "Parts of the reward, words", "Weights of the parts, words"
    assert [chart.title for chart in charts([step(1, 0.2), step(2, 0.2)], ["words"])] == [parts]
    assert [chart.title for chart in charts([step(1, 0.2), step(2, 0.1)], ["words"])] == [parts, weights]
