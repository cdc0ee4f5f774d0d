"""Mistakes where tokens are drawn, recorded and asked about: temperatures, seeds, masks."""

from __future__ import annotations

from tests.laws.mutants.mutant import Mistake, Mutant

SAMPLING = "engines/test_engines_sampling.py::test_"
EPISODE = (
    "rollout/test_rollout_episode.py::"
    "test_every_request_carries_the_attempts_temperature_and_every_turn_a_seed_of_its_own"
)
CREDIT = "run/test_run_credit.py::test_"
BEGINNINGS = "laws/test_l15_any_messages.py::test_"

DRAWING = (
    Mutant(
        "sampler_forgets_the_temperature",
        Mistake.FORGET_THE_TEMPERATURE,
        "engines/sampling.py",
        "logits = logits / torch.where(greedy, 1.0, temperatures)[:, None]",
        "logits = logits * 1.0",
        (SAMPLING + "the_token_is_where_the_cumulative_distribution_passes_the_number",),
    ),
    Mutant(
        "sampler_divides_by_the_temperature_twice",
        Mistake.DIVIDE_TWICE,
        "engines/sampling.py",
        "logits = logits / torch.where(greedy, 1.0, temperatures)[:, None]",
        "logits = logits / torch.where(greedy, 1.0, temperatures)[:, None].square()",
        (SAMPLING + "the_token_is_where_the_cumulative_distribution_passes_the_number",),
    ),
    Mutant(
        "sampled_logprob_forgets_the_temperature",
        Mistake.FORGET_THE_TEMPERATURE,
        "engines/sampling.py",
        "return tokens, (chosen - totals.log()).float()",
        "return tokens, ((chosen - totals.log()) * torch.where(greedy, 1.0, temperatures)).float()",
        (SAMPLING + "the_token_is_where_the_cumulative_distribution_passes_the_number",),
    ),
    Mutant(
        "sampled_logprob_is_not_normalised",
        Mistake.FORGET_A_FACTOR,
        "engines/sampling.py",
        "(chosen - totals.log()).float()",
        "chosen.float()",
        (SAMPLING + "the_token_is_where_the_cumulative_distribution_passes_the_number",),
    ),
    Mutant(
        "random_number_forgets_the_seed",
        Mistake.FORGET_A_FACTOR,
        "engines/sampling.py",
        "splitmix64(keys ^ splitmix64(counters))",
        "splitmix64(np.zeros_like(keys) ^ splitmix64(counters))",
        (SAMPLING + "numbers_are_uniform_and_neighbours_share_nothing",),
    ),
    Mutant(
        "random_number_forgets_the_position",
        Mistake.FORGET_A_FACTOR,
        "engines/sampling.py",
        "splitmix64(keys ^ splitmix64(counters))",
        "splitmix64(keys ^ np.zeros_like(counters))",
        (SAMPLING + "numbers_are_uniform_and_neighbours_share_nothing",),
    ),
    Mutant(
        "neighbouring_seeds_share_their_numbers",
        Mistake.WRONG_PLACE,
        "engines/sampling.py",
        "splitmix64(keys ^ splitmix64(counters))",
        "splitmix64(np.asarray(seeds, dtype=np.uint64) + np.asarray(positions, dtype=np.uint64))",
        (SAMPLING + "numbers_are_uniform_and_neighbours_share_nothing",),
    ),
    Mutant(
        "observed_tokens_are_trained",
        Mistake.DROP_A_MASK,
        "core/stream.py",
        "[-1] * len(tokens), sampled=False)",
        "[-1] * len(tokens), sampled=True)",
        ("laws/test_l12_recorded_masks.py::test_mask_follows_the_sampled_spans_whatever_the_ids_look_like",),
    ),
    Mutant(
        "prompt_of_a_demonstration_is_trained",
        Mistake.DROP_A_MASK,
        "rollout/conversation.py",
        "streams[-1].observe(continuation)",
        "streams[-1].sample(continuation, [0.0] * len(continuation), [0] * len(continuation))",
        ("rollout/test_rollout_conversation.py::test_one_turn_is_its_prompt_and_then_its_reply",),
    ),
    Mutant(
        "siblings_share_their_seed",
        Mistake.FORGET_A_FACTOR,
        "rollout/episode.py",
        "attempt.sibling, turn)",
        "turn)",
        ("rollout/test_rollout_wave.py::test_siblings_have_seeds_of_their_own_and_the_same_plan_has_the_same_seeds",),
    ),
    Mutant(
        "turns_share_their_seed",
        Mistake.FORGET_A_FACTOR,
        "rollout/episode.py",
        "attempt.sibling, turn)",
        "attempt.sibling)",
        (EPISODE,),
    ),
    Mutant(
        "episode_forgets_the_temperature",
        Mistake.FORGET_THE_TEMPERATURE,
        "rollout/episode.py",
        "temperature=attempt.temperature,",
        "temperature=1.0,",
        (EPISODE,),
    ),
    Mutant(
        "kl_in_the_reward_is_measured_at_temperature_one",
        Mistake.FORGET_THE_TEMPERATURE,
        "run/credit.py",
        "sample_of(trajectory, stage.temperature)",
        "sample_of(trajectory, 1.0)",
        (CREDIT + "kl_in_the_reward_is_measured_at_the_stages_temperature_over_sampled_tokens",),
    ),
    Mutant(
        "rows_forget_the_stages_temperature",
        Mistake.FORGET_THE_TEMPERATURE,
        "run/credit.py",
        "        temperature=stage.temperature,\n",
        "",
        (CREDIT + "rows_carry_the_temperature_that_the_stage_sampled_at",),
    ),
    Mutant(
        "kl_of_the_step_counts_prompts",
        Mistake.DROP_A_MASK,
        "run/credit.py",
        "annotations.reference_logprobs[t.trajectory_id])[t.sampled]",
        "annotations.reference_logprobs[t.trajectory_id])",
        (CREDIT + "kl_in_the_reward_is_measured_at_the_stages_temperature_over_sampled_tokens",),
    ),
    Mutant(
        "policy_is_its_own_reference",
        Mistake.WRONG_PLACE,
        "run/credit.py",
        "rows = await learner.logprobs(samples, reference=True)",
        "rows = await learner.logprobs(samples)",
        (CREDIT + "kl_in_the_loss_asks_the_reference_about_rows_that_are_learned_from",),
    ),
    Mutant(
        "reply_begins_anew",
        Mistake.COUNT_TWICE,
        "models/tokenizer.py",
        "*self._literal.encode(text, add_special_tokens=False).ids, self.stop_tokens[0]",
        "*self._literal.encode(text, add_special_tokens=True).ids, self.stop_tokens[0]",
        (BEGINNINGS + "nothing_that_is_appended_begins_anew[tokenizer_too]",),
    ),
    Mutant(
        "room_is_that_of_the_prompt_alone",
        Mistake.FORGET_A_FACTOR,
        "models/tokenizer.py",
        "len(prompt) + max_new_tokens > self.max_context",
        "len(prompt) > self.max_context",
        (BEGINNINGS + "the_limit_is_that_of_the_ids_that_are_sent[template_alone]",),
    ),
)
