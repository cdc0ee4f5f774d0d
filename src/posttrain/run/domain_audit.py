"""`posttrain domains audit NAME`, without the parsing: a domain by name, attacked at every level."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from posttrain.core.protocols import Domain, Sandbox
from posttrain.core.registry import build
from posttrain.domains.audit import DomainAudit, audit_domain
from posttrain.run.sandbox_spec import sandbox_spec


def audit_named_domain(name: str, count: int, sandbox: str, progress: Callable[[str], None]) -> DomainAudit:
    """Raises `UnknownNameError`, and `IsolationUnavailableError` where the domain needs a sandbox and none isolates."""
    domain: Domain = build("domain", name)
    return asyncio.run(_audit(domain, count, sandbox, progress))


async def _audit(domain: Domain, count: int, sandbox: str, progress: Callable[[str], None]) -> DomainAudit:
    if not domain.needs_sandbox:
        return await audit_domain(domain, None, count=count, progress=progress)
    box: Sandbox = build("sandbox", sandbox_spec(sandbox))
    try:
        return await audit_domain(domain, box, count=count, progress=progress)
    finally:
        await box.close()
