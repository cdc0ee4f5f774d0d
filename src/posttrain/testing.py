"""Contract kits for plug-in authors: does my loss obey the laws? For your own test suite; needs no test framework.

Imports lazily: what a kit tries is loaded when it is called. It trains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posttrain.core.law_result import LawResult

if TYPE_CHECKING:
    from posttrain.core.protocols import Sandbox
    from posttrain.losses.base import Loss
    from posttrain.sandbox.attacks.check import AttackResult
    from posttrain.sandbox.conformance import Conformity

__all__ = ["LawResult", "check_loss", "check_sandbox"]


def check_loss(loss: Loss) -> list[LawResult]:
    """Try every law that can be tried on a loss alone; `posttrain check loss NAME` prints the same.

    In a test of your own, with a loss as the configuration would build it:

        def test_my_loss_obeys_the_laws() -> None:
            assert all(check_loss(MyLoss(coefficient=0.5)))

    A result is true where its law holds, and says otherwise how it is broken and with which smallest input; numbers
    that the input does not name are -1 for log-probs, 1 for entropy and weights, 0 else. A loss whose terms depend on
    advantages must have the plain policy gradient on fresh data (law L6), and a term that is named `kl_loss` the
    gradient of KL(policy ‖ reference) times a coefficient (law L5). Where the form is broken (a term that is not one
    value for each token, or carries no gradient), that is the only result. An exception of the loss breaks the law
    that met it; the same inputs are tried every time.
    """
    from posttrain.losses.laws.check import check

    return check(loss)


async def check_sandbox(sandbox: Sandbox) -> list[AttackResult | Conformity]:
    """Try every attack and every expectation of honest programs; `posttrain check sandbox NAME` prints the same.

    In a test of your own:

        def test_my_sandbox_contains_and_conforms() -> None:
            assert all(asyncio.run(check_sandbox(MySandbox())))

    A result is true where the attack was contained or the expectation met, and gives the reason otherwise. Only give
    it a sandbox that you believe in: the programs are hostile, and what it does not contain happens to this machine.
    """
    from posttrain.sandbox.attacks.check import check
    from posttrain.sandbox.conformance import check_conformance

    return [*await check(sandbox), *await check_conformance(sandbox)]
