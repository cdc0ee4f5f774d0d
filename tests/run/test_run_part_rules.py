"""Rewards and the rules about their parts in a configuration: what is laid under what, what cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.core.errors import ConfigError
from posttrain.run.config import RunConfig
from posttrain.run.load import dump, parse

PARTS = {"outcome": {"weight": 1.0}, "process": {"weight": 0.4}, "format": {"weight": 0.1}}


def read(domains: dict[str, Any] | None = None, rules: list[dict[str, Any]] = [], **raw: Any) -> RunConfig:  # noqa: B006
    stages = [{"kind": "rl", "rules": rules}]
    return parse({"model": "m", "domains": domains or {"words": {}}, "stages": stages, **raw})


def lowering(metric: str) -> dict[str, Any]:
    return {"name": "r", "metric": metric, "when": "above", "threshold": 0.9, "action": "lower_part"}


def test_a_domain_states_what_differs_from_the_runs_reward() -> None:
    own = {"parts": {"outcome": {"null_level": 0.25}, "process": {"weight": 0.2}}}
    config = read({"words": {"reward": own}, "sums": {}}, reward={"parts": PARTS})
    words, sums = config.reward_of("words").parts, config.reward_of("sums").parts
    assert (words["outcome"].null_level, words["process"].weight, words["format"].weight) == (0.25, 0.2, 0.1)
    assert (sums["outcome"].null_level, sums["process"].weight) == (0.0, 0.4)


def test_a_domains_parts_come_beside_the_plain_outcome_where_the_run_states_none() -> None:
    parts = read({"words": {"reward": {"parts": {"process": {"weight": 0.2}}}}}).reward_of("words").parts
    assert list(parts) == ["outcome", "process"]
    assert read().reward_of("words").plain


def test_the_stored_configuration_has_every_part_as_it_acts_and_reads_back_to_itself() -> None:
    config = read({"words": {"reward": {"parts": {"process": {"weight": 0.2}}}}}, reward={"parts": PARTS})
    plain = dump(config)
    assert plain["domains"]["words"]["reward"]["parts"]["format"]["source"] == "grammar"
    assert plain["reward"]["parts"]["process"]["cap"] == 0.4
    assert parse(plain) == config
    assert dump(parse(plain)) == plain


@pytest.mark.parametrize("metric", ["reward_saturated/*/format", "audit/agreement/words/process"])
def test_a_rule_may_lower_what_guides_to_the_outcome(metric: str) -> None:
    assert read(reward={"parts": PARTS}, rules=[lowering(metric)]).stages


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("reward_saturated/*/efficiency", "lowers no part: .* ends with none of words/outcome, words/process"),
        ("reward_saturated/sums/format", "lowers no part"),
        ("reward_saturated/words/outcome", "would lower words/outcome, the outcome itself"),
        ("audit/agreement/*/*", "would lower words/outcome, the outcome itself"),
    ],
)
def test_a_rule_that_lowers_nothing_or_the_outcome_is_refused(metric: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(reward={"parts": PARTS}, rules=[lowering(metric)])


def test_the_outcome_may_be_lowered_where_that_is_allowed_by_name() -> None:
    allowed = {"parts": PARTS, "allow": ["lowered_outcome"]}
    assert read(reward=allowed, rules=[lowering("audit/agreement/*/*")]).stages


def test_a_misspelt_option_of_a_part_is_named_with_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"no key reward\.parts\.format 'wieght'; did you mean 'weight'"):
        read(reward={"parts": {**PARTS, "format": {"wieght": 0.1, "weight": 0.1}}})


def test_part_normalisation_and_a_kl_in_the_reward_exclude_one_another() -> None:
    kl = {"place": "reward", "estimator": "k1"}
    with pytest.raises(ConfigError, match="part_mean_std gives every part the same spread"):
        parse(
            {
                "model": "m",
                "domains": {"words": {}},
                "stages": [{"kind": "rl", "kl": kl, "advantage": {"name": "part_mean_std"}}],
            }
        )
