from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posttrain.core.errors import NonFiniteError
from posttrain.engines.sampling import sample, uniforms

NEARLY_ONE = 1 - 2.0**-53
SEEDS = st.integers(0, 2**63 - 1)


def draw(logits: torch.Tensor, temperature: float, numbers: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    temperatures = torch.full((len(numbers),), temperature)
    return sample(
        logits.expand(len(numbers), -1).contiguous(), temperatures, torch.tensor(numbers, dtype=torch.float64)
    )


@given(st.lists(st.tuples(SEEDS, st.integers(0, 2**31)), min_size=1, max_size=20))
def test_a_number_is_a_function_of_seed_and_position_alone(pairs: list[tuple[int, int]]) -> None:
    together = uniforms([seed for seed, _ in pairs], [position for _, position in pairs])
    alone = [float(uniforms([seed], [position])[0]) for seed, position in pairs]
    assert together.tolist() == alone
    assert all(0.0 < number < 1.0 for number in alone)


def test_numbers_are_uniform_and_neighbours_share_nothing() -> None:
    table = np.stack([uniforms([seed] * 400, range(400)) for seed in range(100)])  # [seeds, positions]
    assert len(np.unique(table)) == table.size
    counts = np.histogram(table, bins=50, range=(0, 1))[0]
    assert ((counts - 800) ** 2 / 800).sum() < 100  # chi-square, 49 degrees: above 100 once in 20,000
    for other in (table[1:, :], table[:, 1:]):
        correlation = np.corrcoef(table[: other.shape[0], : other.shape[1]].ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 0.02


@given(
    arrays(np.float32, st.integers(1, 700), elements=st.floats(-20, 20, width=32)),
    st.floats(2.0**-53, NEARLY_ONE),
    st.sampled_from([1.0, 0.5, 1.7]),
)
@settings(deadline=None)
def test_the_token_is_where_the_cumulative_distribution_passes_the_number(
    logits: np.ndarray, number: float, temperature: float
) -> None:
    token, logprob = draw(torch.from_numpy(logits)[None], temperature, [number])
    probabilities = torch.softmax(torch.from_numpy(logits).double() / temperature, dim=0)
    above = probabilities.cumsum(0)
    chosen = int(token)
    assert above[chosen] > number - 1e-5
    assert above[chosen] - probabilities[chosen] < number + 1e-5
    assert float(logprob) == pytest.approx(float(probabilities[chosen].log()), abs=1e-5)


def test_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([[0.0, 1.0, -2.0, 3.0, 2.0, -torch.inf, 0.5]])
    numbers = uniforms([7] * 40_000, range(40_000))
    tokens, _ = draw(logits, 0.8, numbers.tolist())
    expected = torch.softmax(logits[0] / 0.8, dim=0) * 40_000
    counts = torch.bincount(tokens, minlength=7)
    assert counts[5] == 0
    possible = expected > 0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 30  # 5 degrees: once in 70,000


@pytest.mark.parametrize("vocab", [1, 255, 256, 257, 49_152])
@pytest.mark.parametrize("number", [2.0**-53, 0.5, NEARLY_ONE])
def test_a_token_of_zero_probability_is_never_taken(vocab: int, number: float) -> None:
    logits = torch.full((1, vocab + 600), -torch.inf)
    logits[0, 300 : 300 + vocab] = 0.0
    token, logprob = draw(logits, 1.0, [number])
    assert 300 <= int(token) < 300 + vocab
    assert float(logprob) == pytest.approx(-np.log(vocab), abs=1e-5)


def test_temperature_zero_takes_the_best_and_reports_the_plain_distribution() -> None:
    logits = torch.tensor([[0.5, 2.0, 1.0]]).expand(2, 3).contiguous()
    tokens, logprobs = sample(logits, torch.tensor([0.0, 0.5]), torch.tensor([0.9, 0.001], dtype=torch.float64))
    assert tokens.tolist() == [1, 0]
    assert logprobs[0] == pytest.approx(float(logits[0].log_softmax(0)[1]), abs=1e-6)
    assert logprobs[1] == pytest.approx(float((logits[1] / 0.5).log_softmax(0)[0]), abs=1e-6)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    torch.manual_seed(0)
    logits = torch.randn(40, 1000) * 4
    temperatures = torch.rand(40) + 0.1
    numbers = torch.from_numpy(uniforms(range(40), [3] * 40))
    tokens, logprobs = sample(logits, temperatures, numbers)
    for row in (0, 17, 39):
        token, logprob = sample(logits[row : row + 1], temperatures[row : row + 1], numbers[row : row + 1])
        assert (int(token), float(logprob)) == (int(tokens[row]), float(logprobs[row]))


def test_a_certain_token_has_a_logprob_of_zero_and_not_above() -> None:
    tokens, logprobs = draw(torch.tensor([[0.0, 200.0, -50.0]]), 1.0, [0.3, 0.999])
    assert tokens.tolist() == [1, 1]
    assert logprobs.tolist() == [0.0, 0.0]


def test_logits_are_left_as_they_were() -> None:
    logits = torch.randn(2, 10)
    before = logits.clone()
    draw(logits[:1], 0.7, [0.5])
    assert torch.equal(logits, before)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_an_error(value: float) -> None:
    with pytest.raises(NonFiniteError, match="1 rows"):
        draw(torch.tensor([[0.0, value, 1.0]]), 1.0, [0.5])
