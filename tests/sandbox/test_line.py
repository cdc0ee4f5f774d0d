"""Who is next: nobody waits behind more than one of each other caller, and nobody is forgotten."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.sandbox.line import Line


def drained(line: Line[str]) -> list[str]:
    popped = []
    while (waiter := line.pop()) is not None:
        popped.append(waiter)
    return popped


def line_of(*waiters: str, priority: int = 0) -> Line[str]:
    """Each is called by its caller's letter and a number."""
    line: Line[str] = Line()
    for waiter in waiters:
        line.add(waiter, waiter[0], priority)
    return line


def test_callers_take_turns_however_many_each_has_waiting() -> None:
    assert drained(line_of("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_of_one_caller_who_came_first_goes_first() -> None:
    assert drained(line_of("a1", "a2", "a3")) == ["a1", "a2", "a3"]


def test_who_comes_late_waits_for_one_turn_of_each_other_caller() -> None:
    line = line_of("a1", "a2", "a3", "b1", "b2")
    assert line.pop() == "a1"
    line.add("c1", "c", 0)
    assert drained(line) == ["b1", "a2", "c1", "b2", "a3"]


def test_a_caller_whose_turn_just_was_and_who_comes_again_is_behind_the_others() -> None:
    line = line_of("a1", "b1", "b2")
    assert line.pop() == "a1"
    line.add("a2", "a", 0)
    assert drained(line) == ["b1", "a2", "b2"]


def test_the_higher_priority_goes_first_even_when_it_comes_late() -> None:
    line = line_of("a1", "a2")
    line.add("b1", "b", 1)
    line.add("c1", "c", -1)
    assert line.pop() == "b1"
    line.add("a3", "a", 2)
    assert drained(line) == ["a3", "a1", "a2", "c1"]


def test_within_a_priority_callers_take_turns() -> None:
    line = line_of("a1", "a2", "b1")
    for waiter in ("a3", "a4", "b2"):
        line.add(waiter, waiter[0], 7)
    assert drained(line) == ["a3", "b2", "a4", "a1", "b1", "a2"]


def test_who_leaves_is_gone_and_the_order_of_the_others_stays() -> None:
    line = line_of("a1", "a2", "b1", "b2", "c1")
    assert line.remove("b1")
    assert not line.remove("b1")
    assert line.remove("c1")
    assert len(line) == 3
    assert drained(line) == ["a1", "b2", "a2"]


def test_the_last_of_a_caller_and_of_a_priority_can_leave() -> None:
    line = line_of("a1", priority=3)
    line.add("b1", "b", 0)
    assert line.remove("a1")
    assert line.pop() == "b1"
    assert line.pop() is None
    assert not line.remove("b1")
    assert len(line) == 0


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abcd"), st.sampled_from([-1, 0, 0, 0, 5])),
        st.tuples(st.just("pop"), st.just(""), st.just(0)),
        st.tuples(st.just("remove"), st.just(""), st.integers(0, 200)),
    ),
    max_size=80,
)


@given(steps=_STEPS)
@settings(max_examples=300, deadline=None)
def test_nobody_is_lost_and_nobody_starves(steps: list[tuple[str, str, int]]) -> None:
    line: Line[tuple[str, int, int]] = Line()
    waiting: dict[tuple[str, int], deque[tuple[str, int, int]]] = {}
    overtaken: dict[tuple[str, int, int], Counter[str]] = {}
    num_added = num_left = 0
    # Whatever is still there at the end is popped, so that everybody's whole wait is seen.
    for step, caller, number in [*steps, *[("pop", "", 0)] * 81]:
        everybody = [waiter for queue in waiting.values() for waiter in queue]
        if step == "add":
            waiter = (caller, number, num_added)
            line.add(waiter, caller, number)
            waiting.setdefault((caller, number), deque()).append(waiter)
            overtaken[waiter] = Counter()
            num_added += 1
        elif step == "remove":
            chosen = everybody[number % len(everybody)] if everybody else ("nobody", 0, -1)
            assert line.remove(chosen) == bool(everybody)
            if everybody:
                waiting[chosen[:2]].remove(chosen)
                num_left += 1
        else:
            popped = line.pop()
            assert (popped is None) == (not everybody)
            if popped is None:
                continue
            assert popped[1] == max(priority for _, priority, _ in everybody)
            assert waiting[popped[:2]].popleft() == popped  # the first of its caller
            num_left += 1
            for (other, priority), queue in waiting.items():
                if priority == popped[1] and queue and other != popped[0]:
                    # While one waits at the head of its caller, each other caller of its priority has one turn.
                    overtaken[queue[0]][popped[0]] += 1
                    assert overtaken[queue[0]][popped[0]] <= 1
        assert len(line) == num_added - num_left
    assert line.pop() is None
    assert num_left == num_added
