"""What `posttrain check tests` shows a person: a figure for each measurement, and why a task was refused."""

from __future__ import annotations

import io

from rich.console import Console

from posttrain.observe.quality_table import render
from posttrain.verifiers.quality.admission import Admission, decide
from posttrain.verifiers.quality.coverage import Coverage
from posttrain.verifiers.quality.difficulty import Difficulty, DifficultySpread
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.mutants import Mutant
from posttrain.verifiers.quality.mutation import Fate, Judged, Mutation
from posttrain.verifiers.quality.repetition import Repetition
from posttrain.verifiers.quality.report import QualityReport

LOST = NotMeasured("the sandbox was away")
ID = "0c08aa33e7c4c9dbc0e57c6c25a2f57a"


def task(name: str, killed: int, flaky: tuple[int, ...] = (), difficulty: Difficulty | None = None) -> Admission:
    mutant = Mutant("constant", 2, "return 1", "return 2", "")
    fates = [Fate.KILLED] * killed + [Fate.SURVIVED] * (20 - killed)
    return decide(
        QualityReport(
            task=name,
            tier="scripted",
            tests=("f(1)", "f(2)"),
            num_answers=2,
            repetition=Repetition(5, 2, failing=flaky, flaky=flaky),
            coverage=Coverage(50, 25, missed_lines=(7,), missed_arms=()),
            mutation=Mutation(tuple(Judged(mutant, fate) for fate in fates)),
            difficulty=difficulty,
        )
    )


def shown(
    *tasks: Admission, width: int = 80, difficulty: DifficultySpread | None = None, name: str = "tasks.jsonl"
) -> list[str]:
    stream = io.StringIO()
    render(name, "scripted", tasks, difficulty, Console(file=stream, width=width))
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


def test_every_measurement_has_its_column() -> None:
    lines = shown(task("good", killed=19, difficulty=Difficulty(8, 0, (4, 8), 2)), task("other", killed=20))
    assert "task tests lines arms mutants flaky solved" in lines
    assert "good 2 0.98 1.00 0.95 0 0.25 admitted" in lines
    assert "other 2 0.98 1.00 1.00 0 - admitted" in lines
    assert "2 of 2 tasks admitted, 0 refused." in lines


def test_a_refused_task_is_shown_with_its_report_and_every_reason() -> None:
    lines = shown(task("weak", killed=10), task("shaky", killed=20, flaky=(1,)))
    assert "weak 2 0.98 1.00 0.50 0 - REFUSED" in lines
    assert "shaky 2 0.98 1.00 1.00 1 - REFUSED" in lines
    assert "survived: line 2, constant: return 1 → return 2" in lines
    reason = "the tests' mutation score is 0.500 and must be at least 0.800: 10 mutants pass them"
    assert f"refused: {reason}" in lines, "a sentence is not broken by a narrow terminal"
    assert "refused: the reference answers differently from run to run in f(2)" in lines
    assert "0 of 2 tasks admitted, 2 refused." in lines


def test_what_was_not_measured_has_no_figure() -> None:
    report = QualityReport("lost", "scripted", ("f(1)",), 1, LOST, LOST, LOST)
    assert "lost 1 - - - - - REFUSED" in shown(decide(report))


def test_a_narrow_terminal_cuts_names_and_no_figures() -> None:
    lines = shown(task(ID, killed=20))
    assert any(line.endswith("… 2 0.98 1.00 1.00 0 - admitted") for line in lines)
    assert f"{ID} 2 0.98 1.00 1.00 0 - admitted" in shown(task(ID, killed=20), width=120)


def test_the_difficulty_of_tasks_with_replies_is_summed_up() -> None:
    spread = DifficultySpread(
        num_tasks=5, num_never_solved=2, num_always_solved=1, tenths=(2, 0, 0, 0, 2, 0, 0, 0, 0, 1)
    )
    assert "Of 5 tasks with replies, 1 are always solved and 2 never." in shown(task("a", 20), difficulty=spread)


def test_names_are_no_markup() -> None:
    lines = shown(task("[red]", killed=20), name="[bold].jsonl")
    assert "Hidden tests of [bold].jsonl, sandbox scripted" in lines
    assert any(line.startswith("[red] ") for line in lines)
