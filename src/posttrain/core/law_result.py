"""What a contract kit says of one law and one plug-in. It knows neither the laws nor the plug-ins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LawResult:
    """True where the law holds, so that a list of them can be asserted with `all`."""

    law: str
    holds: bool
    """Also where the law says nothing about this plug-in; `what` then says so."""
    what: str
    """What the law asks for, or how it is broken."""
    smallest_input: str = ""
    """The smallest input that was found to break it; empty where it holds or breaks without any."""

    def __bool__(self) -> bool:
        return self.holds
