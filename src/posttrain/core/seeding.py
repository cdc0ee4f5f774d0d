"""Random states from names: every draw in a run is keyed by what it is for, never by the order of events.

Neighbouring seeds, indices and names share nothing (law L30), and a resumed run draws what the first would have.
"""

from __future__ import annotations

import hashlib
import random


def stable_hash(*parts: str | int) -> int:
    """A 63-bit hash of `parts` that is the same in every process, on every machine, for ever."""
    text = "".join(f"{type(part).__name__}:{len(str(part))}:{part}" for part in parts)
    content = text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1


def stable_random(*parts: str | int) -> random.Random:
    """A standard-library generator whose state is a hash of `parts`."""
    return random.Random(stable_hash(*parts))
