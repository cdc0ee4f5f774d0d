"""What an SFT stage learns from, all sources together: domains, files, the policy's own verified attempts.

Which rows there are and which are held out is a function of the configuration, the files and, for its own attempts,
of the policy when the stage began. A resumed stage finds the same rows or is refused (law L21). It trains nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from posttrain.core.errors import UserError
from posttrain.core.protocols import Domain
from posttrain.run.config import RunConfig, SftStage
from posttrain.run.data_rows import check_data, data_rows
from posttrain.run.domain_demonstrations import demonstrations, domain_rows, training_tasks
from posttrain.run.parts import Parts
from posttrain.run.rows import Rows
from posttrain.run.self_demonstrations import self_rows
from posttrain.store.files import read_json, storing, write_json
from posttrain.store.position import Position
from posttrain.store.trajectories import TrajectoryStore


def check_sources(stage: SftStage, config: RunConfig, domains: Mapping[str, Domain]) -> None:
    """What can be found wrong without a model. Raises `UserError`."""
    held_out = num_held_out(stage, len(domains))
    if stage.demonstrations and stage.source == "domains":
        demonstrations(stage, config, domains, held_out)
    elif stage.demonstrations:
        training_tasks(stage, config, domains, held_out)
    if stage.data:
        check_data(stage)


def num_held_out(stage: SftStage, num_domains: int) -> int:
    """Rows that each source keeps for validation; every domain is a source, and the files together are one."""
    num_sources = (num_domains if stage.demonstrations else 0) + bool(stage.data)
    return -(-stage.num_validation // num_sources)


async def gather(stage: SftStage, stage_index: int, parts: Parts, folder: Path, *, resumed: bool) -> Rows:
    """The stage's rows; `folder` is the run's place for demonstrations, `resumed` says that steps have been taken.

    With source "self" and not `resumed`, the engine must hold the policy as the stage begins. Raises `UserError` for
    rows that cannot be learned from, or are not those that the stage began with.
    """
    domains = parts.rollouts.domains
    held_out = num_held_out(stage, len(domains))
    rows = Rows([], [])
    if stage.demonstrations and stage.source == "domains":
        rows += domain_rows(stage, parts, held_out)
    elif stage.demonstrations:
        rows += await self_rows(
            stage,
            training_tasks(stage, parts.config, domains, held_out),
            parts,
            TrajectoryStore(folder),
            stage_index=stage_index,
            held_out=held_out,
            resumed=resumed,
        )
    if stage.data:
        rows += data_rows(
            stage,
            parts.rollouts.renderer,
            max_context=_max_context(parts),
            held_out=held_out,
            seed=parts.config.seed,
        )
    if stage.num_validation and not rows.validation:
        raise UserError(f"stage {stage.name} has no row to validate on: not one of its held-out tasks was solved")
    _refuse_changed(stage, rows, folder / f"{Position(stage_index, 0)}.json", resumed=resumed)
    for note in rows.notes:
        parts.observer.note(note)
    return rows


def _max_context(parts: Parts) -> int:
    of_model = parts.rollouts.renderer.tokenizer.max_context
    return min(of_model or parts.rollouts.roller.max_context, parts.rollouts.roller.max_context)


def _refuse_changed(stage: SftStage, rows: Rows, path: Path, *, resumed: bool) -> None:
    state = hashlib.blake2b(digest_size=16)
    for sample in (*rows.training, *rows.validation):
        state.update(f"{sample.trajectory_id}\0{sample.segment}\0{len(sample.tokens)}\0".encode())
        state.update(sample.tokens.tobytes() + sample.trainable.tobytes())
    found = {"training": len(rows.training), "validation": len(rows.validation), "fingerprint": state.hexdigest()}
    if not resumed:
        with storing(path):
            path.parent.mkdir(exist_ok=True)
        write_json(path, found)
    elif path.is_file() and (known := read_json(path)) != found:
        raise UserError(
            f"stage {stage.name} began with {known['training']} rows to learn from and {known['validation']} to "
            f"validate on, and finds others now ({found['training']} and {found['validation']}): put its files back "
            "as they were, or begin a new run"
        )
