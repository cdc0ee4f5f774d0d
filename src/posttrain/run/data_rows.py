"""Rows of files → samples; those that cannot be used are counted, named with file and line, and limited in number.

A row longer than the model's context is one of them: nothing is cut. Equal rows lie on the same side of the division
into training and validation.
"""

from __future__ import annotations

from collections.abc import Sequence

from posttrain.core.errors import ModelError, UserError
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Sample
from posttrain.rollout.render import Renderer
from posttrain.run.config import SftStage
from posttrain.run.rows import Rows, conversation_samples
from posttrain.store.sft_rows import BadRow, SftRow, data_files, read_rows

DOMAIN = "data"
"""Of samples that come from files."""
MAX_PLACES_SHOWN = 5


def check_data(stage: SftStage) -> None:
    """What can be found wrong without a model. Raises `UserError`."""
    rows = list(read_rows(data_files(stage.data)))
    _refuse_bad(stage, len(rows), [row for row in rows if isinstance(row, BadRow)])


def data_rows(stage: SftStage, renderer: Renderer, *, max_context: int, held_out: int, seed: int) -> Rows:
    """Raises `UserError` where more than the stage's share of the rows is bad, or too few are left to hold some out."""
    good: list[list[Sample]] = []
    bad: list[BadRow] = []
    for row in read_rows(data_files(stage.data)):
        found = row if isinstance(row, BadRow) else _samples(stage, renderer, row, max_context)
        if isinstance(found, BadRow):
            bad.append(found)
        else:
            good.append(found)
    _refuse_bad(stage, len(good) + len(bad), bad)
    keys = [stable_hash("validation", seed, stage.name, row[0].tokens.tobytes().hex()) for row in good]
    chosen = set(sorted(set(keys))[:held_out])
    sides = [key in chosen for key in keys]
    if all(sides):
        raise UserError(
            f"stage {stage.name} holds out {held_out} distinct rows of its files for validation, and they have only "
            f"{len(chosen)}: lower validation, or give more rows"
        )
    return Rows(
        training=[sample for row, held in zip(good, sides, strict=True) if not held for sample in row],
        validation=[sample for row, held in zip(good, sides, strict=True) if held for sample in row],
        values={"bad_rows": float(len(bad))},
        notes=[f"{stage.name} leaves out {_counted(len(good) + len(bad), bad)}"] if bad else [],
    )


def _samples(stage: SftStage, renderer: Renderer, row: SftRow, max_context: int) -> list[Sample] | BadRow:
    try:
        samples = conversation_samples(
            renderer,
            f"{DOMAIN}/{row.place}",
            DOMAIN,
            row.messages,
            first_trained=row.first_trained,
            prompt_loss_weight=stage.prompt_loss_weight,
        )
    except ModelError as error:
        return BadRow(row.place, str(error))
    longest = max(len(sample.tokens) for sample in samples)
    if longest > max_context:
        return BadRow(row.place, f"too long: {longest} tokens of at most {max_context}")
    return samples


def _refuse_bad(stage: SftStage, num_rows: int, bad: Sequence[BadRow]) -> None:
    if num_rows == 0:
        raise UserError(f"the files of stage {stage.name} hold no rows: {', '.join(stage.data)}")
    if len(bad) > stage.max_bad_share * num_rows or len(bad) == num_rows:
        raise UserError(
            f"stage {stage.name} cannot use {_counted(num_rows, bad)}. At most {stage.max_bad_share:.2%} may be bad "
            "(max_bad_share): mend or remove them, or raise it"
        )


def _counted(num_rows: int, bad: Sequence[BadRow]) -> str:
    places = [str(row) for row in bad[:MAX_PLACES_SHOWN]]
    if len(bad) > len(places):
        places.append(f"and {len(bad) - len(places)} more")
    return f"{len(bad)} of {num_rows} rows ({len(bad) / num_rows:.2%}): {'; '.join(places)}"
