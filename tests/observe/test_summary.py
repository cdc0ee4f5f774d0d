from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from posttrain.observe.summary import Gain, summary, to_json
from posttrain.store.run_directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def test_json_has_the_promised_shape(make_run: MakeRun) -> None:
    shown = json.loads(json.dumps(to_json(summary(make_run())), allow_nan=False))
    assert list(shown["domains"]) == ["arithmetic", "ordering", "python_functions"]
    for labels in shown["domains"].values():
        assert list(labels) == ["base", "sft", "rl"]
        for score in labels.values():
            assert 0 <= score["ci95"][0] <= score["pass_at_1"] <= score["ci95"][1] <= 1
            assert score["n"] == 128
            assert {"greedy", "pass_at_k", "best_constant", "distinct_answers"} <= set(score)
    assert shown["gain_rl"] == {"mean": 0.18, "ci95": [0.15, 0.21]}
    assert (shown["wall_s"], shown["model"], shown["steps"]) == (754.0, "smollm2-135m", 42)


def test_stages_say_what_was_done_and_what_was_planned(make_run: MakeRun) -> None:
    found = summary(make_run())
    assert [(s.name, s.kind, s.steps, s.planned_steps) for s in found.stages] == [
        ("sft", "sft", 30, 40),
        ("rl", "rl", 12, 12),
    ]
    assert found.gain_rl == Gain(0.18, (0.15, 0.21))
    assert {domain: len(curve) for domain, curve in found.curves.items()} == {
        "arithmetic": 12,
        "ordering": 12,
        "python_functions": 12,
    }


@pytest.mark.parametrize("stages", [(), ("sft",)])
def test_an_unfinished_run_shows_what_there_is(make_run: MakeRun, stages: tuple[str, ...]) -> None:
    found = summary(make_run(stages=stages))
    assert not found.finished
    assert found.gain_rl is None
    assert found.labels == ("base", *stages)
    assert found.steps == 30 * len(stages)
    assert found.wall_s >= 0
    json.dumps(to_json(found), allow_nan=False)


def test_a_run_without_any_record_is_shown(make_run: MakeRun) -> None:
    run = make_run(stages=())
    (run.evals / "00-base.json").unlink()
    found = summary(run)
    assert (found.labels, found.domains, found.mean, found.steps) == ((), {}, {}, 0)


def test_a_torn_line_is_told(make_run: MakeRun) -> None:
    run = make_run()
    with run.metrics.open("a") as file:
        file.write('{"schema')
    assert any("cut off" in sentence for sentence in summary(run).alarms)


def test_parts_of_rewards_are_no_domains(run_with_parts: RunDirectory) -> None:
    found = summary(run_with_parts)
    assert list(found.curves) == ["arithmetic", "ordering", "python_functions"]
    assert [(p.domain, p.part, p.first_weight, p.last_weight) for p in found.parts] == [
        ("arithmetic", "outcome", 1.0, 1.0),
        ("arithmetic", "format", 0.2, 0.05),
    ]
    assert to_json(found)["parts"][0]["curve"] == pytest.approx([0.53, 0.54, 0.55, 0.56])
