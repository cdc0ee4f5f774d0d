from __future__ import annotations

from typing import Any

from posttrain.core.types import Detection, VerdictStatus
from posttrain.gate.review import draw, open_items, review_stats, settle
from posttrain.store.attempt_facts import AttemptFacts
from posttrain.store.position import Position
from posttrain.store.review import Label, ReviewItem, ReviewLabel, Why

GRAVE = (Detection("several_answers", 13, "1; 2", grave=True),)


def facts(name: str, *, correct: bool = True, **fields: Any) -> AttemptFacts:
    status = VerdictStatus.CORRECT if correct else VerdictStatus.INCORRECT
    score = float(correct)
    default: dict[str, Any] = {
        "verifier_version": "1",
        "reward": score,
        "reward_parts": {"outcome": score},
        "score": score,
    }
    return AttemptFacts(Position(1, 1), name, "g", "words", status, **{**default, **fields})


def run(right: int, wrong: int, suspect: int = 0) -> list[AttemptFacts]:
    return [
        *(facts(f"right-{n}") for n in range(right)),
        *(facts(f"wrong-{n}", correct=False) for n in range(wrong)),
        *(facts(f"suspect-{n}", detections=GRAVE) for n in range(suspect)),
    ]


def labels(items: list[ReviewItem], truth: Any, reviewer: str = "ann") -> list[ReviewLabel]:
    return [ReviewLabel(item.trajectory_id, reviewer, truth(item.trajectory_id)) for item in items]


def test_every_stratum_is_drawn_from_and_nothing_twice() -> None:
    everything = run(100, 50, 3)
    items = draw(everything, [], per_stratum=5, seed=0)
    names = [item.trajectory_id for item in items]
    assert len(set(names)) == len(names) == 13
    assert {item.why for item in items if item.trajectory_id.startswith("suspect")} == {Why.FLAGGED}
    assert draw(everything, items, per_stratum=5, seed=0) == []
    assert names != [item.trajectory_id for item in draw(everything, [], per_stratum=5, seed=1)]


def test_what_was_drawn_stays_in_while_a_run_goes_on() -> None:
    early = draw(run(40, 0), [], per_stratum=8, seed=0)
    late = draw(run(80, 0), early, per_stratum=8, seed=0)
    whole = draw(run(80, 0), [], per_stratum=8, seed=0)
    assert {item.trajectory_id for item in whole} <= {item.trajectory_id for item in [*early, *late]}


def test_attempts_without_a_verdict_are_not_reviewed() -> None:
    lost = facts("lost", correct=False)
    lost = AttemptFacts(**{**vars(lost), "status": VerdictStatus.NO_VERDICT})
    assert draw([lost], [], per_stratum=5, seed=0) == []


def test_precision_and_recall_are_of_the_run_and_not_of_the_sample() -> None:
    # Of 90 accepted ones 80 are plain and right, 10 suspect and wrong; of 910 refused ones all are wrong.
    everything = run(80, 910, 10)
    items = draw(everything, [], per_stratum=10, seed=0)
    given = labels(items, lambda name: Label.CORRECT if name.startswith("right") else Label.INCORRECT)
    (found,) = review_stats(everything, items, given).verifiers
    assert found.precision is not None
    assert found.recall is not None
    assert abs(found.precision.value - 80 / 90) < 1e-9, "half of the labelled ones would be 0.5"
    assert found.recall.value == 1.0
    assert found.recall.ci95[0] < 0.7, "ten labels cannot rule out that a tenth of 910 was right"
    assert found.num_labels == 30
    assert abs(found.agreement["outcome"] - 990 / 1000) < 1e-9


def test_labels_outside_of_the_queue_and_of_attempts_that_are_gone_count_for_nothing() -> None:
    everything = run(20, 20)
    items = draw(everything, [], per_stratum=3, seed=0)
    chosen = [ReviewLabel("right-0", "ann", Label.INCORRECT), ReviewLabel("gone", "ann", Label.INCORRECT)]
    if any(item.trajectory_id == "right-0" for item in items):
        items = [item for item in items if item.trajectory_id != "right-0"]
    stats = review_stats(everything, items, chosen)
    assert stats.num_labelled == 0
    assert stats.verifiers[0].precision is None


def test_a_later_label_of_the_same_person_replaces_the_earlier_one() -> None:
    everything = run(5, 0)
    items = draw(everything, [], per_stratum=5, seed=0)
    wrong, right = labels(items, lambda _: Label.INCORRECT), labels(items, lambda _: Label.CORRECT)
    (found,) = review_stats(everything, items, [*wrong, *right]).verifiers
    assert found.precision is not None
    assert found.precision.value == 1.0


def test_the_second_label_is_asked_of_another_person_on_a_share() -> None:
    everything = run(200, 0)
    items = draw(everything, [], per_stratum=200, seed=0)
    twice = [item for item in items if item.second]
    assert 0.15 < len(twice) / len(items) < 0.35
    given = labels(items, lambda _: Label.CORRECT)
    assert open_items(items, given, "ann") == []
    assert open_items(items, given, "bob") == twice
    assert open_items(items, [*given, *labels(twice, lambda _: Label.INCORRECT, "bob")], "cam") == []
    stats = review_stats(everything, items, [*given, *labels(twice, lambda _: Label.INCORRECT, "bob")])
    assert stats.num_twice == len(twice)
    assert stats.kappa == 0.0
    assert stats.verifiers[0].disputed == len(twice)


def test_most_people_decide_and_a_split_decides_nothing() -> None:
    assert settle({"a": Label.CORRECT, "b": Label.UNCLEAR}) is Label.CORRECT
    assert settle({"a": Label.CORRECT, "b": Label.INCORRECT}) is None
    assert settle({"a": Label.CORRECT, "b": Label.INCORRECT, "c": Label.INCORRECT}) is Label.INCORRECT
    assert settle({"a": Label.UNCLEAR}) is Label.UNCLEAR


def test_versions_of_a_verifier_are_told_apart() -> None:
    everything = [*run(10, 0), facts("new", verifier_version="2")]
    assert [one.version for one in review_stats(everything, [], []).verifiers] == ["1", "2"]
