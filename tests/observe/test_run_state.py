from __future__ import annotations

import pytest

from posttrain.observe.run_state import RunState, duration, headline


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_the_pace_of_the_steps_seen() -> None:
    clock = Clock()
    state = RunState(clock)
    state.begin_stage("rl", 100)
    assert state.left_s is None
    for step in range(1, 4):
        clock.now += 10
        state.end_step(step, {})
    assert state.left_s == pytest.approx(970)


def test_the_first_step_warms_up_and_says_nothing_about_the_time_left() -> None:
    clock = Clock()
    state = RunState(clock)
    state.begin_stage("sft", 100)
    clock.now += 60
    state.end_step(1, {})
    assert state.left_s is None
    clock.now += 1
    state.end_step(2, {})
    assert state.left_s == pytest.approx(98)


def test_time_left_of_a_resumed_stage_counts_only_what_this_process_did() -> None:
    clock = Clock()
    state = RunState(clock)
    state.begin_stage("rl", 100, done=90)
    assert state.steps() == "rl 90/100", "before its first step too"
    clock.now += 5
    state.end_step(91, {})
    clock.now += 5
    state.end_step(92, {})
    assert state.left_s == pytest.approx(40)


def test_a_stage_without_end_has_no_time_left() -> None:
    state = RunState(Clock())
    state.begin_stage("sft", None)
    state.end_step(1, {})
    assert state.left_s is None
    assert state.steps() == "sft"


def test_the_phase_is_named_with_how_far_it_is() -> None:
    clock = Clock()
    state = RunState(clock)
    assert state.doing() == "starting, 0 s"
    state.begin_phase("generating", 128)
    state.phase_done += 40
    clock.now += 12
    assert state.doing() == "generating 40/128, 12 s"


def test_headline_takes_what_is_there_and_leaves_what_it_does_not_know() -> None:
    assert headline({"loss": 1.25, "grad_norm": 3.0}) == ["loss 1.2500"]
    assert headline({"loss": 1.25, "validation_loss": 1.5}) == ["loss 1.2500", "validation 1.5000"]
    values = {"reward": 0.5, "loss": 0.1, "pass/words": 0.25, "pass/logic": 1.0, "tokens_per_s": 99.6, "new": 1.0}
    assert headline(values) == ["reward 0.500", "pass words 0.25 logic 1.00", "100 tokens/s"]
    assert headline({}) == []


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (3661, "1:01:01")])
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text
