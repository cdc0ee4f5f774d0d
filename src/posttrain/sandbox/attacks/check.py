"""Try every attack on a sandbox, each followed by an innocent program that must be right; two families at a time.

The judge is here, outside: the result class, what the program says it could do, and what happened to the world. It
repeats nothing that fails, and it knows no backend by name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallOutput, CallResult, OutputStatus, ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.attacks.attack import Attack, Call, Run
from posttrain.sandbox.attacks.catalogue import FAMILIES
from posttrain.sandbox.attacks.world import World, planted_secret, world

_INNOCENT = (
    "def triple(x):\n    with open('mine', 'w') as file: file.write(str(x))\n    return 3 * int(open('mine').read())\n"
)
_INNOCENT_LIMITS = SandboxLimits(wall_s=30.0)
_NUM_BESIDE = 2
_NUM_LANES = 2
"""Families at a time, each in a world of its own, so that what happens to one is its own attack's doing."""


@dataclass(frozen=True)
class AttackResult:
    """`contained` is False for what was not offered too: nothing was shown about it."""

    name: str
    kind: str
    """The family."""
    contained: bool
    offered: bool
    result_class: ResultClass | None
    expected: tuple[ResultClass, ...]
    reason: str
    """A sentence; empty where it was contained."""
    neighbour_right: bool
    forged: bool

    def __bool__(self) -> bool:
        return self.contained


@dataclass(frozen=True)
class _Seen:
    """All that came out of the executions of one attack."""

    result_class: ResultClass
    said: str
    outputs: tuple[CallOutput, ...]


async def check(
    sandbox: Sandbox,
    families: Mapping[str, Sequence[Attack]] = FAMILIES,
    progress: Callable[[str], None] = lambda sentence: None,
) -> list[AttackResult]:
    """`progress` gets a sentence for each family that is through."""
    lanes = asyncio.Semaphore(_NUM_LANES)

    async def lane(kind: str, attacks: Sequence[Attack], secret: str) -> list[AttackResult]:
        async with lanes:
            with world(secret) as outside:
                found = [await _try(sandbox, kind, attack, outside) for attack in attacks]
        progress(f"{kind}: {sum(map(bool, found))} of {len(found)} contained")
        return found

    with planted_secret() as secret:
        found = await asyncio.gather(*(lane(kind, attacks, secret) for kind, attacks in families.items()))
    return [result for results in found for result in results]


async def _try(sandbox: Sandbox, kind: str, attack: Attack, outside: World) -> AttackResult:
    beside = [asyncio.create_task(_innocent(sandbox)) for _ in range(_NUM_BESIDE if attack.beside else 0)]
    refusal, seen = "", None
    try:
        seen = await _execute(sandbox, attack, outside)
    except SandboxError as error:
        refusal = f"not offered: {error}"
    beside_right = all(await asyncio.gather(*beside))
    after_right = await _innocent(sandbox)
    damage = outside.damage(seen.said if seen else "")
    forged = seen is not None and _forged(seen.outputs, outside.right_answer)
    reason = refusal
    if seen:
        reason = _breach(attack, seen, forged, damage)
    if not beside_right or not after_right:
        where = "after" if beside_right else "beside"
        reason = reason or f"an innocent program {where} it did not come out right"
    return AttackResult(
        name=attack.name,
        kind=kind,
        contained=not reason,
        offered=seen is not None,
        result_class=seen.result_class if seen else None,
        expected=attack.ends,
        reason=reason,
        neighbour_right=beside_right and after_right,
        forged=forged,
    )


async def _execute(sandbox: Sandbox, attack: Attack, outside: World) -> _Seen:
    if isinstance(attack.how, Run):
        files = {**attack.how.files, "world.json": json.dumps(outside.told())}
        run = await sandbox.run(attack.how.argv, files=files, stdin=attack.how.stdin, limits=attack.limits)
        return _Seen(run.result_class, _said(run), ())
    first = await _call(sandbox, attack.how, attack.limits, outside)
    if attack.then is None:
        return _Seen(first.run.result_class, _said(first.run, first.outputs), first.outputs)
    second = await _call(sandbox, attack.then, attack.limits, outside)
    outputs = (*first.outputs, *second.outputs)
    worst = first if first.run.result_class not in attack.ends else second
    return _Seen(worst.run.result_class, _said(first.run, outputs) + _said(second.run), outputs)


async def _call(sandbox: Sandbox, call: Call, limits: SandboxLimits, outside: World) -> CallResult:
    return await sandbox.call(call.source, "attack", [[outside.told()]], limits=limits)


def _said(run: RunResult, outputs: Sequence[CallOutput] = ()) -> str:
    return "\n".join([run.stdout, run.stderr, *(f"{output.value!r} {output.error}" for output in outputs)])


def _forged(outputs: Sequence[CallOutput], right_answer: int) -> bool:
    """As a naive caller would compare, so that an object which lies would win here."""
    return any(output.status is OutputStatus.VALUE and output.value == right_answer for output in outputs)


def _breach(attack: Attack, seen: _Seen, forged: bool, damage: str) -> str:
    """Why the attack was not contained; the worst reason first."""
    if forged:
        return "a forged verdict would have been counted"
    if damage:
        return damage
    boasts = [output.value for output in seen.outputs if output.status is OutputStatus.VALUE and output.value]
    boasts += [line for line in seen.said.splitlines() if line.startswith("could ")]
    if boasts:
        return f"the program did what it must not: {str(boasts)[:300]}"
    if seen.result_class not in attack.ends:
        return f"it ended as {seen.result_class}, not as {' or '.join(attack.ends)}"
    return ""


async def _innocent(sandbox: Sandbox) -> bool:
    result = await sandbox.call(_INNOCENT, "triple", [[14]], limits=_INNOCENT_LIMITS)
    return [(output.status, output.value) for output in result.outputs] == [(OutputStatus.VALUE, 42)]
