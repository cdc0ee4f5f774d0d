"""Token ids → the text of each, for people to read: with the tokenizer that a run has beside its records, if any.

Runs do not need one to be read; without it tokens are shown as numbers. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from posttrain.store.run_directory import RunDirectory

TokenText = Callable[[Sequence[int]], list[str]]
_TORN = "\N{REPLACEMENT CHARACTER}"


def token_text(run: RunDirectory, model: str) -> TokenText | None:
    """From `tokenizer.json` of the run, of one of its checkpoints, or of the model where that is a local folder."""
    places = [run.path / "tokenizer.json", *sorted(run.checkpoints.rglob("tokenizer.json"), reverse=True)]
    found = next((place for place in (*places, Path(model) / "tokenizer.json") if place.is_file()), None)
    return None if found is None else _pieces_by(found)


def _pieces_by(path: Path) -> TokenText:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))

    def pieces(tokens: Sequence[int]) -> list[str]:
        """One text for each token; of a character that spans several, the last one has it."""
        texts, pending = [], []
        for token in tokens:
            pending.append(int(token))
            text = tokenizer.decode(pending, skip_special_tokens=False)
            whole = not text.endswith(_TORN) or len(pending) > 3
            texts.append(text if whole else "")
            pending = [] if whole else pending
        return texts

    return pieces
