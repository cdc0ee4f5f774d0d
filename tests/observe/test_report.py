from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from posttrain.observe.attempts import attempt_views, unscored_reasons
from posttrain.observe.report import html_report, lasting, write_report
from posttrain.observe.token_text import token_text
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.weight_changes import WeightChange

MakeRun = Callable[..., RunDirectory]
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Collects elements and attributes, and checks that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def byte_tokenizer(path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))


def test_the_page_is_whole_and_needs_nothing_from_outside(make_run: MakeRun) -> None:
    page = Page(html_report(make_run(rl_steps=50)))
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert not [value for name, value in page.attributes if name in ("src", "href", "action")]
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_what_the_model_wrote_is_text(make_run: MakeRun) -> None:
    text = html_report(make_run())
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in text
    assert "{{ 7 * 7 }}" in text


def test_the_page_has_its_parts(make_run: MakeRun) -> None:
    text = html_report(make_run())
    for part in (
        "Before and after",
        "Curves",
        "Where the time went",
        "Attempts",
        "Failures of ours",
        "How it was made",
    ):
        assert f"<h2>{part}</h2>" in text
    assert "54.0 – 62.0" in text
    assert "+18.0" in text
    assert "posttrain train configs/quickstart.toml" in text
    assert "python_functions, sandbox: the sandbox ended" in text


@pytest.mark.parametrize("stages", [(), ("sft",)])
def test_an_unfinished_run_has_a_page(make_run: MakeRun, stages: tuple[str, ...]) -> None:
    text = html_report(make_run(stages=stages))
    assert Page(text).open == []
    assert "unfinished" in text
    assert "Where the time went" not in text


def test_an_empty_run_has_a_page(make_run: MakeRun) -> None:
    run = make_run(stages=())
    (run.evals / "00-base.json").unlink()
    text = html_report(run)
    assert "No evaluation is there yet." in text
    assert "No step is done yet." in text


def test_the_page_is_written_into_the_run(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(stages=())
    assert write_report(run.path) == run.path / "report.html"
    assert write_report(run.path, tmp_path / "x.html").read_text().startswith("<!doctype html>")


def test_attempts_are_a_few_right_and_wrong_ones_of_every_domain(make_run: MakeRun) -> None:
    run = make_run()
    views = attempt_views(TrajectoryStore(run.trajectories), None)
    assert list(views) == ["arithmetic", "ordering", "python_functions"]
    for found in views.values():
        assert [view.status for view in found] == ["correct", "correct", "incorrect", "incorrect"]
        assert [view.step for view in found] == [12, 11, 12, 11]
    assert all(len(view.tokens) == 20 for found in views.values() for view in found), "the prompt is not shaded"
    assert all(0 <= token.shade <= 1 for found in views.values() for view in found for token in view.tokens)


def test_failures_of_ours_are_counted_by_reason(make_run: MakeRun) -> None:
    ((reason, count),) = unscored_reasons(TrajectoryStore(make_run().trajectories))
    assert reason.startswith("python_functions, sandbox: the sandbox ended")
    assert count == 1


def test_tokens_are_spelled_with_the_runs_own_tokenizer(make_run: MakeRun) -> None:
    run = make_run(stages=())
    assert token_text(run, "smollm2-135m") is None
    byte_tokenizer(run.path / "tokenizer.json")
    text_of = token_text(run, "smollm2-135m")
    assert text_of is not None
    said = "4 + 4 = “ü”"
    ids = Tokenizer.from_file(str(run.path / "tokenizer.json")).encode(said).ids
    pieces = text_of(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == said


def test_a_checkpoints_tokenizer_serves_too(make_run: MakeRun) -> None:
    run = make_run(stages=())
    folder = run.checkpoints / "000000-rl-1" / "policy"
    folder.mkdir(parents=True)
    byte_tokenizer(folder / "tokenizer.json")
    assert token_text(run, "smollm2-135m") is not None


def test_weights_that_moved_stand_with_their_cause_as_text(run_with_parts: RunDirectory) -> None:
    page = html_report(run_with_parts)
    assert "Weights that moved" in page
    assert "<td>0.2 → 0.05</td>" in page
    assert "reward_saturated/arithmetic/format was 1" in page
    assert "<script>" not in page


def test_a_schedules_stretch_is_one_row_and_a_rules_change_stands_alone() -> None:
    def change(step: int, before: float, after: float, cause: str) -> WeightChange:
        return WeightChange(1, step, "words", "format", before, after, cause)

    scheduled = [change(step, step / 10, (step + 1) / 10, f"the schedule of step {step + 1}") for step in (1, 2, 3)]
    by_rule = change(4, 0.4, 0.2, "it was saturated")
    assert [(c.step, c.before, c.after) for c in lasting([*scheduled, by_rule])] == [(3, 0.1, 0.4), (4, 0.4, 0.2)]
