from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console

from posttrain.observe.show import percent, render, sparkline
from posttrain.observe.summary import Summary, summary
from posttrain.store.run_directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def shown(found: Summary) -> str:
    stream = io.StringIO()
    render(found, Console(file=stream, width=80))
    return stream.getvalue()


def test_the_table_has_every_domain_before_between_and_after(make_run: MakeRun) -> None:
    text = shown(summary(make_run()))
    rows = {line.split()[0]: line for line in text.partition("Held-out pass@1")[2].splitlines() if line.strip()}
    assert "10.0 [6, 14]  31.0 [27, 35]  58.0 [54, 62]" in rows["arithmetic"]
    assert "1.0 [0, 5]  18.0 [14, 22]  20.0 [16, 24]" in rows["python_functions"]
    assert "5.0 [3, 7]  23.7 [22, 26]  41.7 [40, 44]" in rows["mean"]
    assert "Gain of RL: +18.0 points, paired 95 % interval [+15.0, +21.0]" in text
    assert "! 1 attempt in 1 training step got no verdict" in text
    assert "…" not in text, "it fits 80 columns"


def test_greedy_constant_and_distinct_answers_stand_beside_each_score(make_run: MakeRun) -> None:
    text = shown(summary(make_run()))
    assert "arithmetic        base     11.0    16.0    5.0       57  128" in text
    assert "greedy  pass@4  const  answers    n" in text


def test_an_unfinished_run_is_shown_as_such(make_run: MakeRun) -> None:
    text = shown(summary(make_run(stages=("sft",))))
    assert "unfinished" in text
    assert "sft 30 of 40 → rl 0 of 12 steps" in text
    assert "Gain" not in text


def test_a_run_without_evaluations_says_so(make_run: MakeRun) -> None:
    found = replace(summary(make_run(stages=())), labels=(), domains={}, mean={})
    assert "No evaluation is there yet." in shown(found)


def test_markup_in_names_is_text(make_run: MakeRun) -> None:
    found = replace(summary(make_run()), run="[bold red]run[/]", alarms=("[link=x]alarm[/link]",))
    assert "[bold red]run[/]" in shown(found)
    assert "[link=x]alarm[/link]" in shown(found)


def test_a_sparkline_runs_from_zero_to_one() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([]) == sparkline([float("nan")]) == ""
    assert sparkline([0.0] * 50 + [1.0] * 50, width=4) == "▁▁██"
    assert sparkline([0.0, 3.0]) == "▁█"


def test_what_was_not_measured_is_a_dash() -> None:
    assert [percent(value) for value in (None, float("nan"), 0.4125)] == ["–", "–", "41.2"]


def test_each_part_of_a_reward_has_its_weight_and_its_curve(run_with_parts: RunDirectory) -> None:
    text = shown(summary(run_with_parts))
    rows = [line.split() for line in text.partition("Parts of the reward")[2].splitlines()]
    assert ["arithmetic", "outcome", "1", "53.0", "56.0", "▅▅▅▅"] in rows
    assert ["format", "0.2", "→", "0.05", "90.0", "90.0", "████"] in rows
    assert max(map(len, text.splitlines())) <= 80


def test_a_reward_of_the_outcome_alone_has_no_table_of_parts(make_run: MakeRun) -> None:
    assert "Parts of the reward" not in shown(summary(make_run()))
