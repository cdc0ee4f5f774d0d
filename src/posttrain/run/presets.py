"""Published recipes by name, as options that anybody can see and change; and options that contradict one another.

A preset is plain data laid under what the user states, before anything is checked, so the recorded configuration
shows every option that acted. It states what defines the algorithm and no learning rate, batch size or temperature:
those belong to a model and a problem. Nothing is built here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from posttrain.core.errors import ConfigError
from posttrain.core.registry import unknown
from posttrain.core.types import Json

Options = dict[str, Any]

PRESETS: Mapping[str, Options] = {
    # Shao et al., arXiv:2402.03300
    "grpo": {
        # eq. 3; it names no bounds, these are PPO's. The ratio is not capped.
        "loss": {"name": "clipped_policy_gradient", "clip_low": 0.2, "clip_high": 0.2, "max_importance_weight": 0.0},
        "advantage": {"name": "group_mean_std"},  # section 4.1.2
        "reduction": "sequence_mean",  # eq. 3: 1/G Σ 1/|o_i| Σ
        "silent_groups": "keep",  # eq. 3: the mean is over all groups
        "kl": {"place": "loss", "estimator": "k3", "coefficient": 0.04},  # eq. 3 and 4; section 4.2
        "truncated": "keep",
        "updates_per_step": 1,  # section 4.2: a single update following each exploration stage
    },
    # Liu et al., arXiv:2503.20783
    "dr_grpo": {
        "loss": {"name": "clipped_policy_gradient", "clip_low": 0.2, "clip_high": 0.2, "max_importance_weight": 0.0},
        "advantage": {"name": "group_mean"},  # section 3.2: without the standard deviation
        "reduction": "fixed_length",  # section 3.2: without 1/|o_i|
        "silent_groups": "keep",
        "truncated": "keep",
        "updates_per_step": 1,
    },
    # Yu et al., arXiv:2503.14476
    "dapo": {
        # eq. 10, section 4.1
        "loss": {"name": "clipped_policy_gradient", "clip_low": 0.2, "clip_high": 0.28, "max_importance_weight": 0.0},
        "advantage": {"name": "group_mean_std"},  # eq. 9
        "reduction": "token_mean",  # eq. 12
        "silent_groups": "leave_out",  # eq. 11
        "refill_rounds": 9,  # eq. 11, section 3.2: until the batch is full; the authors' code stops at ten rounds
        "truncated": "penalise",  # eq. 13; the buffer is a fifth of the limit, as in section 4.1
        "updates_per_step": 16,  # section 4.1
    },
    # Ahmadian et al., arXiv:2402.14740
    "rloo": {
        "loss": {"name": "reinforce", "max_importance_weight": 0.0},  # no clipping: the whole reply is one action
        "advantage": {"name": "leave_one_out"},
        "reduction": "fixed_length",  # ∇ log of a reply is the sum over its tokens; the constant only scales it
        "silent_groups": "keep",
        "kl": {"place": "reward", "estimator": "k1", "coefficient": 0.05},  # of the reply; the size is TRL's
        "truncated": "keep",
        "updates_per_step": 1,
    },
    # Hu et al., arXiv:2501.03262
    "reinforce_plus_plus": {
        "loss": {"name": "clipped_policy_gradient", "clip_low": 0.2, "clip_high": 0.2, "max_importance_weight": 0.0},
        "advantage": {"name": "batch_whitened"},  # global advantage normalisation, no group baseline
        "reduction": "token_mean",
        "silent_groups": "keep",
        "kl": {"place": "reward", "estimator": "k1", "coefficient": 0.01},  # token by token; the size is OpenRLHF's
        "truncated": "keep",
        "updates_per_step": 1,
    },
    # Zheng et al., arXiv:2507.18071
    "gspo": {
        "loss": {"name": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},  # eq. 5, section 5.1
        "advantage": {"name": "group_mean_std"},  # eq. 6
        "reduction": "sequence_mean",  # eq. 5: 1/G Σ over replies
        "silent_groups": "keep",
        "truncated": "keep",
        "updates_per_step": 4,  # section 5.1
    },
    # MiniMax, arXiv:2506.13585
    "cispo": {
        "loss": {"name": "cispo", "clip_high": 4.0},  # eq. 4 and 5, no lower bound; the size is ScaleRL's and TRL's
        "advantage": {"name": "group_mean_std"},  # eq. 2
        "reduction": "token_mean",  # eq. 4: 1/Σ|o_i|
        "silent_groups": "leave_out",
        "refill_rounds": 9,  # section 3.1: dynamic sampling and length penalty of DAPO
        "truncated": "penalise",
        "updates_per_step": 16,  # section 3.1: 16 rounds of off-policy updates
    },
    # Schulman et al., arXiv:1707.06347, as for language models by Ouyang et al., arXiv:2203.02155, appendix C.4
    "ppo": {
        "loss": {"name": "clipped_policy_gradient", "clip_low": 0.2, "clip_high": 0.2, "max_importance_weight": 0.0},
        "advantage": {"name": "gae", "gamma": 1.0, "lam": 0.95},  # C.4: no discount; λ of Ziegler, arXiv:1909.08593
        "critic": {"coefficient": 0.1, "clip": 0.2},  # Ziegler's code: one trunk for policy and critic
        "reduction": "token_mean",
        "silent_groups": "keep",
        "kl": {"place": "reward", "estimator": "k1", "coefficient": 0.02},  # C.4
        "truncated": "keep",
        "updates_per_step": 8,  # C.4: 8 minibatches, a single inner epoch
        "epochs": 1,
    },
}

COMPONENTS = ("loss", "advantage")
"""Options of another component than the preset's would mean nothing: naming one replaces the preset's whole."""

BY_GROUP = ("group_mean", "group_mean_std", "leave_one_out", "part_mean_std", "per_step")
"""Advantages that compare siblings."""

NOT_BY_GROUP = ("batch_whitened", "gae")
"""Advantages that do not, or need not."""

NO_POLICY_TERM = ("entropy_bonus", "kl_penalty", "value", "supervised")
"""Losses that read no advantage."""


def with_preset(stage: Mapping[str, Json]) -> Options:
    """An RL stage's table with its `preset` laid under it; tables inside are laid under one another key by key.

    Other stages have none. Raises `ConfigError` where there is no such preset. Applied to its own result it changes
    nothing.
    """
    name = stage.get("preset")
    if not name or stage.get("kind") != "rl":
        return dict(stage)
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(unknown("preset", str(name), PRESETS))
    preset = copy.deepcopy(PRESETS[name])
    merged: Options = {**preset, **stage}
    for key, ours in preset.items():
        theirs = stage.get(key)
        if isinstance(ours, dict) and isinstance(theirs, Mapping):
            replaced = key in COMPONENTS and theirs.get("name", ours["name"]) != ours["name"]
            merged[key] = dict(theirs) if replaced else {**ours, **theirs}
    return merged


def contradictions(stage: Mapping[str, Json]) -> list[str]:
    """One sentence for each pair of a stage's options that cannot both be meant; options as plain data, tables nested.

    Of a component that is not among ours nothing is known and nothing refused.
    """
    return [*_of_kl(stage), *_of_the_advantage(stage), *_of_the_loss(stage), *_without_effect(stage)]


def _of_kl(stage: Mapping[str, Json]) -> list[str]:
    found = []
    kl, loss = stage.get("kl"), stage["loss"]
    name = loss.get("name", "")
    if kl and kl["place"] == "reward" and kl["estimator"] != "k1":
        found.append(
            f'kl.estimator = "{kl["estimator"]}" in the reward has another gradient than that of the KL '
            '(rewards/kl_in_reward.py): take "k1", or place = "loss"'
        )
    if kl and (name == "kl_penalty" or loss.get("kl_coefficient", 0.0)):
        found.append(f"the KL would be penalised twice, by [kl] and by the loss {name}: leave one out (law L5)")
    for table in ("kl", "entropy"):
        options = stage.get(table)
        if options and options.get("target", 0.0) and not options["coefficient"]:
            found.append(f"{table}.target steers {table}.coefficient by a factor, and 0 stays 0: start above it")
    return found


def _of_the_advantage(stage: Mapping[str, Json]) -> list[str]:
    found = []
    advantage, critic = stage["advantage"], stage.get("critic")
    name = advantage.get("name", "")
    ours = name in BY_GROUP + NOT_BY_GROUP
    by_group = name in BY_GROUP or (name == "batch_whitened" and advantage.get("group_baseline", False))
    if name == "gae" and not critic:
        found.append("the advantage gae needs the values of a critic: add [critic], or compare siblings (group_mean)")
    if critic and ours and name != "gae":
        found.append(f"a critic is trained for nothing: the advantage {name} does not ask for values (gae does)")
    if critic and not critic["coefficient"]:
        found.append("critic.coefficient = 0 would leave the critic as it was made: random values")
    if name == "part_mean_std" and stage.get("kl") and stage["kl"]["place"] == "reward":
        found.append(
            "the advantage part_mean_std gives every part the same spread, the KL in the reward as well, so its "
            'coefficient would not say how much it weighs: take kl.place = "loss"'
        )
    if by_group and stage["group_size"] == 1:
        found.append(f"group_size = 1 leaves the advantage {name} no sibling to compare with: every credit would be 0")
    if ours and not by_group and stage["refill_rounds"]:
        found.append(f"refill_rounds replaces groups without a difference, and the advantage {name} learns from those")
    return found


def _of_the_loss(stage: Mapping[str, Json]) -> list[str]:
    found = []
    loss = stage["loss"]
    name = loss.get("name", "")
    if name in NO_POLICY_TERM:
        found.append(f"the loss {name} reads no advantage: nothing would be learned from rewards")
    if stage["max_staleness"] and name in NO_POLICY_TERM:
        found.append(f"max_staleness above 0 needs an importance correction, and the loss {name} has none (law L20)")
    whole = "sequence_mean" if loss.get("length_normalized", True) else "fixed_length"  # as `losses/gspo.py` derives
    if name == "gspo" and stage["reduction"] != whole:
        found.append(
            f'gspo weighs whole sequences, and reduction = "{stage["reduction"]}" would not count each as its ratio '
            f'does: take "{whole}"'
        )
    dual_clip = loss.get("dual_clip", 0.0)
    if isinstance(dual_clip, int | float) and 0.0 < dual_clip <= 1.0:
        found.append(f"loss.dual_clip = {dual_clip} would stop tokens that have not moved: it must be above 1, or 0")
    return found


def _without_effect(stage: Mapping[str, Json]) -> list[str]:
    found = []
    if stage["fixed_length_tokens"] and stage["reduction"] != "fixed_length":
        found.append('fixed_length_tokens has no effect without reduction = "fixed_length"')
    if stage["overlong_buffer_tokens"] and stage["truncated"] != "penalise":
        found.append('overlong_buffer_tokens has no effect without truncated = "penalise"')
    if stage["max_update_kl"] and stage["updates_per_step"] * stage["epochs"] == 1:
        found.append("max_update_kl leaves out a step's remaining updates, and there is one: raise updates_per_step")
    return found
