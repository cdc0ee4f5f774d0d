"""The rules that watch every stage of reinforcement learning for collapse and for a fooled verifier, with the reason
for each threshold.

A stage's own rules come on top; one with a default's name takes its place. Nothing is evaluated here.
"""

from __future__ import annotations

from collections.abc import Sequence

from posttrain.core.rules import Action, Baseline, Comparison, Rule

# Beside metrics of the step there are those of `run/defence.py`, `run/drift.py` and `run/audited.py`.
# Conservative: a healthy run raises none of them, so each asks for a lasting state far outside of what one shows. Of
# 110 steps of the quickstart (16 groups of 8) the worst are named. They warn: which remedy is right is the user's call.
QUARANTINE_METRICS = ("suspect/", "detector/")
"""What the metric of a rule that quarantines begins with: those that count attempts before a step is learned from."""

DEFAULT_RULES = (
    Rule(
        name="loss_not_finite",
        metric="loss",
        when=Comparison.NOT_FINITE,
        action=Action.STOP,
        why="nothing that is learned from here on means anything",
    ),
    Rule(
        name="gradient_not_finite",
        metric="grad_norm",
        when=Comparison.NOT_FINITE,
        action=Action.STOP,
        why="nothing that is learned from here on means anything",
    ),
    Rule(
        name="reward_not_finite",
        metric="reward",
        when=Comparison.NOT_FINITE,
        action=Action.STOP,
        why="every advantage of the step is wrong",
    ),
    # The quickstart's lowest step is 0.2 of its start; every policy sharpens, so it must fall deeper.
    Rule(
        name="entropy_low",
        metric="entropy",
        when=Comparison.BELOW,
        threshold=0.1,
        relative_to=Baseline.START,
        for_steps=10,
        why="the policy hardly explores any more",
    ),
    # The quickstart's single steps reach twice the start; text without sense is many times above it.
    Rule(
        name="entropy_high",
        metric="entropy",
        when=Comparison.ABOVE,
        threshold=5.0,
        relative_to=Baseline.START,
        for_steps=10,
        why="the policy's distribution is dissolving into noise",
    ),
    # Half a nat: an average token that the policy draws is exp(-0.5) = 61 % as likely under the reference.
    Rule(
        name="kl_high",
        metric="kl",
        when=Comparison.ABOVE,
        threshold=0.5,
        for_steps=5,
        why="the policy is far from its reference, and what that one could do may be lost",
    ),
    # Single steps reach 3 times the recent median, and one spike is what gradient clipping is for.
    Rule(
        name="gradient_spike",
        metric="grad_norm",
        when=Comparison.ABOVE,
        threshold=10.0,
        relative_to=Baseline.RECENT,
        window=20,
        for_steps=3,
        why="updates of this kind destroy what was learned",
    ),
    # Fresh tasks every step make the reward noisy, and a harder mixture may halve it: warn of what lasts.
    Rule(
        name="reward_fell",
        metric="reward",
        when=Comparison.BELOW,
        threshold=0.5,
        relative_to=Baseline.START,
        for_steps=20,
        why="the policy earns less than before training",
    ),
    # The quickstart's highest single step is 0.875 with a pass rate that still rises.
    Rule(
        name="no_signal",
        metric="zero_signal_share",
        when=Comparison.ABOVE,
        threshold=0.9,
        for_steps=10,
        why="nearly all groups agree on their reward, so nearly nothing is learned; all solved, or all lost?",
    ),
    # Groups may still differ, by next to nothing: with scores of 0 and 1, no spread already is no signal.
    Rule(
        name="rewards_alike",
        metric="reward_spread",
        when=Comparison.BELOW,
        threshold=0.05,
        relative_to=Baseline.START,
        for_steps=10,
        why="attempts at one task hardly differ in reward, so noise is what is learned",
    ),
    # Right answers that differ cannot get below 0.4 with 4 tasks of 8 attempts, nor below 0.2 with 2 tasks of 16.
    Rule(
        name="answers_alike",
        metric="answer_entropy/*",
        when=Comparison.BELOW,
        threshold=0.05,
        for_steps=10,
        why="different tasks get one and the same answer",
    ),
    # An honest policy's share is the chance that two tasks have the same answer: 1/2 for yes or no.
    Rule(
        name="constant_answer",
        metric="constant_share/*",
        when=Comparison.ABOVE,
        threshold=0.9,
        for_steps=10,
        why="the answer does not depend on the task; compare constant_score with the pass rate",
    ),
    # The quickstart's highest step is 0.011; long programs and proofs repeat some of their 4-grams, a loop nearly all.
    Rule(
        name="repetition",
        metric="repetition",
        when=Comparison.ABOVE,
        threshold=0.5,
        for_steps=5,
        why="the policy repeats itself",
    ),
    # Reasoning may grow on purpose, over hundreds of steps: what doubles within 50 runs away.
    Rule(
        name="length_grew",
        metric="mean_tokens",
        when=Comparison.ABOVE,
        threshold=2.0,
        relative_to=Baseline.RECENT,
        window=50,
        for_steps=10,
        why="attempts grow without bound",
    ),
    Rule(
        name="length_shrank",
        metric="mean_tokens",
        when=Comparison.BELOW,
        threshold=0.25,
        relative_to=Baseline.START,
        for_steps=10,
        why="the policy hardly answers any more",
    ),
    # Half of the attempts say nothing about the task: they end where the limit is.
    Rule(
        name="truncated",
        metric="truncated_share",
        when=Comparison.ABOVE,
        threshold=0.5,
        for_steps=10,
        why="most attempts are cut off by a length limit",
    ),
    # Within ten steps a healthy policy's length and entropy move by tens of per cent.
    Rule(
        name="length_jumped",
        metric="mean_tokens",
        when=Comparison.ABOVE,
        threshold=1.8,
        relative_to=Baseline.RECENT,
        for_steps=2,
        why="attempts have become much longer at once: has the policy found something that pays?",
    ),
    Rule(
        name="entropy_jumped",
        metric="entropy",
        when=Comparison.ABOVE,
        threshold=3.0,
        relative_to=Baseline.RECENT,
        for_steps=2,
        why="the policy has changed its ways at once",
    ),
    # One attempt in ten without a verdict is no accident: what is left is a biased choice.
    Rule(
        name="no_verdict",
        metric="no_verdict_share/*",
        when=Comparison.ABOVE,
        threshold=0.1,
        for_steps=3,
        why="the domain's verifier or sandbox fails, and what it fails on is not learned from",
    ),
    # A verifier that pays for what a grave detector saw is wrong about it, or the detector is: a person should look,
    # and until then nothing should be learned from it.
    Rule(
        name="suspect",
        metric="suspect/*",
        when=Comparison.ABOVE,
        threshold=0.0,
        action=Action.QUARANTINE,
        why="the verifier pays for what a detector takes for a cheat; such attempts are not learned from",
    ),
    # A few are a detector's mistakes. Most of what is paid, again and again, is what the policy has learned to do.
    Rule(
        name="exploited",
        metric="suspect_of_paid/*",
        when=Comparison.ABOVE,
        threshold=0.5,
        for_steps=10,
        action=Action.PAUSE,
        why="the policy lives on what detectors take for a cheat: mend the verifier, raise its version, resume",
    ),
    Rule(
        name="visible_hidden_gap",
        metric="visible_hidden_gap/*",
        when=Comparison.ABOVE,
        threshold=0.2,
        for_steps=3,
        why="programs pass the tests that they can see and fail the hidden ones",
    ),
    # Both rates are means over the same attempts, so their difference moves by a few hundredths from window to window.
    Rule(
        name="unconfirmed",
        metric="drift/*",
        when=Comparison.ABOVE,
        threshold=0.15,
        for_steps=3,
        why="the reward rises and what should rise with it does not",
    ),
    Rule(
        name="unconfirmed_for_long",
        metric="drift/*",
        when=Comparison.ABOVE,
        threshold=0.3,
        for_steps=5,
        action=Action.PAUSE,
        why="most of what the reward has gained is confirmed by nothing else",
    ),
    # Below 0 only where the audited precision's whole 95 % interval lies below the floor: a few labels pause nothing
    # unless they leave no doubt.
    Rule(
        name="audited_precision",
        metric="audit/precision_margin/*",
        when=Comparison.BELOW,
        threshold=0.0,
        action=Action.PAUSE,
        why="people found the domain's verifier less precise than its floor (precision_floor)",
    ),
)


def with_defaults(rules: Sequence[Rule]) -> list[Rule]:
    """A stage's own rules and the default ones; a rule with the name of a default takes its place.

    Raises ValueError where two of `rules` share a name.
    """
    own = {rule.name: rule for rule in rules}
    if len(own) < len(rules):
        raise ValueError(f"rules need different names, not {[rule.name for rule in rules]}")
    defaults = [own.pop(rule.name, rule) for rule in DEFAULT_RULES]
    return [*defaults, *own.values()]
