"""`posttrain reverify RUN`: what the verifiers of today say of stored attempts, and which steps learned otherwise.

The run's own records are only read. What is found is written beside them, step by step, so an interrupted call goes on
where it was; a step whose attempts have changed since, or that a failure of ours left without a verdict, is done again.
Attempts of several turns are left out and counted: their environments' replies would have to be played again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import IsolationUnavailableError, UserError
from posttrain.core.protocols import Domain, Observer, Sandbox
from posttrain.core.registry import build, unknown
from posttrain.core.sandboxing import SANDBOX_CALLER, SandboxCaller
from posttrain.core.types import Json, Verdict, VerdictStatus
from posttrain.run.config import RunConfig
from posttrain.run.load import parse
from posttrain.run.parts import make_domains
from posttrain.run.presets import BY_GROUP
from posttrain.run.rl_stage import RlStage
from posttrain.store.attempt_facts import AttemptFacts, attempt_facts
from posttrain.store.checkpoints import Checkpoints
from posttrain.store.files import read_json, storing, write_json
from posttrain.store.position import Position
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.trajectory_row import TrajectoryRow

AT_ONCE = 32
"""Attempts that are judged together."""


@dataclass(frozen=True)
class Change:
    """One attempt that is now judged otherwise."""

    stage: str
    step: int
    domain: str
    trajectory_id: str
    old: VerdictStatus
    new: VerdictStatus
    old_score: float
    new_score: float
    old_version: str
    new_version: str
    reason: str
    """The new verdict's."""
    learned: bool
    """Whether an update was made of the attempt with its old verdict."""


@dataclass(frozen=True)
class ReverifiedDomain:
    domain: str
    old_versions: tuple[str, ...]
    new_version: str
    attempts: int
    """That were judged again."""
    no_verdict: int
    """Of those, left without a verdict this time, through failures of ours: a later call asks again."""
    several_turns: int
    """Left out."""


@dataclass(frozen=True)
class Reverified:
    run: str
    domains: tuple[ReverifiedDomain, ...]
    unchanged: tuple[str, ...]
    """Domains left out, since every stored verdict is of their verifier's present version."""
    changes: tuple[Change, ...]
    checkpoint: str | None
    """The last one before the first step that learned from a changed verdict; None: there is none, or no such step."""

    @property
    def affected_steps(self) -> tuple[tuple[str, int], ...]:
        """Stage and step of each that learned from a changed verdict, in order."""
        return tuple(dict.fromkeys((change.stage, change.step) for change in self.changes if change.learned))


def reverify(
    run: Path, only: str | None, observer: Observer, domains: Mapping[str, Domain] | None = None
) -> Reverified:
    """`domains` as in `start_run`. Raises `UserError` where the run has no such domain, or its tasks have changed."""
    directory = RunDirectory.open(run)
    config = parse(directory.config())
    made = dict(domains) if domains is not None else make_domains(config.domains)
    if only is not None and only not in made:
        raise UserError(unknown("domain of the run", only, made))
    facts = list(attempt_facts(TrajectoryStore(directory.trajectories)))
    versions = {
        name: {one.verifier_version for one in facts if one.domain == name and one.verifier_version} for name in made
    }
    stale = [
        name for name, domain in made.items() if name == only or (only is None and versions[name] - {domain.version})
    ]
    wanted = {name: made[name] for name in stale}
    judged = asyncio.run(_judge_all(directory, config, wanted, facts, observer)) if wanted else {}
    changes = _changes(config, facts, judged)
    learned = [change for change in changes if change.learned]
    return Reverified(
        run=directory.name,
        domains=tuple(_of_domain(name, made[name], versions[name], facts, judged) for name in stale),
        unchanged=tuple(sorted(made.keys() - wanted.keys())) if only is None else (),
        changes=tuple(changes),
        checkpoint=_checkpoint_before(directory, config, learned[0]) if learned else None,
    )


Judged = dict[str, Verdict | None]
"""By attempt; None where it was left out."""


async def _judge_all(
    directory: RunDirectory,
    config: RunConfig,
    domains: Mapping[str, Domain],
    facts: Sequence[AttemptFacts],
    observer: Observer,
) -> Judged:
    store = TrajectoryStore(directory.trajectories)
    observer.phase("verifying again", total=sum(one.domain in domains for one in facts))
    sandbox: Sandbox | None = None
    if any(domain.needs_sandbox for domain in domains.values()):
        sandbox = build("sandbox", config.sandbox)
    judged: Judged = {}
    try:
        for position in store.positions():
            rows = store.read(position)
            for name, domain in domains.items():
                own = [row for row in rows if row.domain == name and row.failure is None and row.verdict is not None]
                if own:
                    judged |= await _judge_step(directory, position, domain, own, sandbox)
                observer.advance(sum(row.domain == name for row in rows))
    finally:
        if sandbox is not None:
            await sandbox.close()
    return judged


async def _judge_step(
    directory: RunDirectory, position: Position, domain: Domain, rows: Sequence[TrajectoryRow], sandbox: Sandbox | None
) -> Judged:
    """One step's attempts of one domain, from what an earlier call found where that still holds."""
    path = directory.reverified / domain.name / _file_name(domain.version) / f"{position}.json"
    source = _digest(domain, rows)
    known = read_json(path) if path.is_file() else {}
    if known.get("source") == source:
        found = {name: _from_plain(verdict) for name, verdict in known["verdicts"].items()}
        if all(verdict is None or verdict.status is not VerdictStatus.NO_VERDICT for verdict in found.values()):
            return found
    verdicts: Judged = {}
    for start in range(0, len(rows), AT_ONCE):
        chunk = rows[start : start + AT_ONCE]
        answers = await asyncio.gather(*(_judge(domain, row, sandbox) for row in chunk))
        verdicts |= {row.trajectory_id: answer for row, answer in zip(chunk, answers, strict=True)}
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"source": source, "verdicts": {name: _plain(verdict) for name, verdict in verdicts.items()}})
    return verdicts


async def _judge(domain: Domain, row: TrajectoryRow, sandbox: Sandbox | None) -> Verdict | None:
    if len(row.turns) > 1:
        return None
    task = domain.task(row.split, row.seed, row.index, row.level)
    if task.task_id != row.task_id:
        raise UserError(
            f"domain {domain.name} now makes another task than the run's {row.task_id}: what was asked is gone, so no "
            "verifier can say whether the reply was right"
        )
    SANDBOX_CALLER.set(SandboxCaller(domain.name))
    environment = domain.environment(task, sandbox)
    try:
        async with asyncio.timeout(task.limits.timeout_s):
            await environment.reset()
            step = await environment.step(row.reply, truncated=row.stop.truncated)
    except (IsolationUnavailableError, UserError):
        raise
    except Exception as error:  # an environment is a plug-in: whatever it raises is its failure (law L23)
        return Verdict.none(f"{type(error).__name__}: {error}")
    finally:
        await environment.close()
    return step.verdict if step.verdict is not None else Verdict.none("the environment gave no verdict")


def _changes(config: RunConfig, facts: Sequence[AttemptFacts], judged: Judged) -> list[Change]:
    learned = _learned(config, facts)
    changes = []
    for one in facts:
        new = judged.get(one.trajectory_id)
        if new is None or (new.status is one.status and new.score == one.score):
            continue
        changes.append(
            Change(
                stage=config.stages[one.position.stage_index].name,
                step=one.position.step,
                domain=one.domain,
                trajectory_id=one.trajectory_id,
                old=one.status,
                new=new.status,
                old_score=one.score,
                new_score=new.score,
                old_version=one.verifier_version,
                new_version=new.verifier_version,
                reason=new.reason,
                learned=one.trajectory_id in learned,
            )
        )
    return changes


def _learned(config: RunConfig, facts: Sequence[AttemptFacts]) -> set[str]:
    """The attempts that an update was made of: not those of replaced groups, without a verdict, in quarantine, or in
    groups that agreed on their reward and were left out for it."""
    groups: dict[tuple[Position, str], list[AttemptFacts]] = {}
    for one in facts:
        groups.setdefault((one.position, one.group_id), []).append(one)
    number: dict[Position, int] = {}
    learned: set[str] = set()
    for (position, _), own in groups.items():
        number[position] = number.get(position, 0) + 1
        stage = config.stages[position.stage_index]
        if not isinstance(stage, RlStage) or number[position] > stage.groups_per_step:
            continue
        scored = [one for one in own if one.status is not VerdictStatus.NO_VERDICT and not one.quarantine]
        compares = stage.advantage.get("name") in BY_GROUP and stage.silent_groups == "leave_out"
        if not compares or len({one.reward for one in scored}) > 1:
            learned |= {one.trajectory_id for one in scored}
    return learned


def _of_domain(
    name: str, domain: Domain, versions: set[str], facts: Sequence[AttemptFacts], judged: Judged
) -> ReverifiedDomain:
    own = [judged[one.trajectory_id] for one in facts if one.domain == name and one.trajectory_id in judged]
    verdicts = [verdict for verdict in own if verdict is not None]
    return ReverifiedDomain(
        domain=name,
        old_versions=tuple(sorted(versions)),
        new_version=domain.version,
        attempts=len(verdicts),
        no_verdict=sum(verdict.status is VerdictStatus.NO_VERDICT for verdict in verdicts),
        several_turns=len(own) - len(verdicts),
    )


def _checkpoint_before(directory: RunDirectory, config: RunConfig, first: Change) -> str | None:
    number = [stage.name for stage in config.stages].index(first.stage)
    before = [
        found
        for found in Checkpoints(directory.checkpoints, keep=1).whole()
        if (found.state["stage"], found.state["step"]) < (number, first.step)
    ]
    return before[-1].path.name if before else None


def _digest(domain: Domain, rows: Sequence[TrajectoryRow]) -> str:
    """Of what the verdicts depend on."""
    content = hashlib.blake2b(digest_size=16)
    for row in rows:
        content.update(f"{row.trajectory_id}\0{row.task_id}\0{row.reply}\0".encode(errors="surrogatepass"))
    return f"{domain.version}:{content.hexdigest()}"


def _file_name(version: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", version) or "unnamed"


def _plain(verdict: Verdict | None) -> Json:
    if verdict is None:
        return None
    return [str(verdict.status), verdict.score, verdict.reason, verdict.answer, verdict.verifier_version]


def _from_plain(verdict: Json) -> Verdict | None:
    if verdict is None:
        return None
    status, score, reason, answer, version = verdict
    return Verdict(VerdictStatus(status), score, reason, answer=answer, verifier_version=version)
