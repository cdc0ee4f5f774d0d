"""Negative log-likelihood, and nothing else."""

from __future__ import annotations

from tests.losses.loss_parts import inputs, slopes

from posttrain.losses.supervised import Supervised


def test_supervised_ignores_advantages_and_behaviour() -> None:
    given = inputs([3.0, 0.1], [5.0, -5.0])
    assert Supervised()(given).terms["negative_log_likelihood"].tolist() == [2.0, 2.0]
    assert slopes(Supervised(), given) == [-1.0, -1.0]
