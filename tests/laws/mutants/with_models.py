"""Mistakes that take a model to see: the step's one sum over micro-batches and ranks, recomputation, decoding."""

from __future__ import annotations

from tests.laws.mutants.mutant import Mistake, Mutant

RANKS = "laws/test_l01_ranks.py::test_"
DENOMINATOR = "laws/test_l02_one_denominator.py::test_"
INPUTS = "learn/test_learn_loss_inputs.py::test_"
KEYED = "laws/test_sampling_keyed_by_request.py::test_"
SAMPLER = "laws/test_l16_sampler_logprobs.py::test_"
ARRIVE = "laws/test_l17_weights_arrive.py::test_"

WITH_MODELS = (
    Mutant(
        "micro_batch_divides_by_its_own_weight",
        Mistake.LOCAL_COUNT,
        "learn/trainer.py",
        "shares = batch.loss_weights / global_weight",
        "shares = batch.loss_weights / batch.loss_weights.sum()",
        (DENOMINATOR + "loss_is_the_mean_over_all_tokens_not_over_micro_batches",),
    ),
    Mutant(
        "step_is_divided_by_its_samples_too",
        Mistake.DIVIDE_TWICE,
        "learn/trainer.py",
        "shares = batch.loss_weights / global_weight",
        "shares = batch.loss_weights / global_weight / len(samples)",
        (DENOMINATOR + "loss_is_the_mean_over_all_tokens_not_over_micro_batches",),
    ),
    Mutant(
        "step_is_divided_by_the_ranks_too",
        Mistake.DIVIDE_TWICE,
        "learn/trainer.py",
        "shares = batch.loss_weights / global_weight",
        "shares = batch.loss_weights / global_weight / self._peers.world_size",
        (RANKS + "several_ranks_give_what_one_gives[2-supervised]",),
    ),
    Mutant(
        "rank_divides_by_its_own_weight",
        Mistake.LOCAL_COUNT,
        "learn/trainer.py",
        "tally = self._backward(stage.objective, samples, global_weight, controls)",
        "tally = self._backward(stage.objective, samples, math.fsum("
        "float(batch.loss_weights.sum()) for batch in self._batches(samples, self._peers.world_size, self._peers.rank)"
        ") or 1.0, controls)",
        (RANKS + "several_ranks_give_what_one_gives[2-supervised]",),
    ),
    Mutant(
        "loss_weights_are_in_the_denominator_alone",
        Mistake.FORGET_A_FACTOR,
        "learn/trainer.py",
        "shares = batch.loss_weights / global_weight",
        "shares = torch.ones_like(batch.loss_weights) / global_weight",
        (DENOMINATOR + "weights_of_one_over_the_length_give_the_mean_of_the_samples_means",),
    ),
    Mutant(
        "denominator_is_the_number_of_tokens",
        Mistake.WRONG_STATISTIC,
        "learn/trainer.py",
        "math.fsum(sample.weight for sample in samples)",
        "math.fsum(sample.num_loss_tokens for sample in samples)",
        (DENOMINATOR + "scaling_every_weight_changes_nothing",),
    ),
    Mutant(
        "gradient_of_the_step_before_is_kept",
        Mistake.WRONG_PLACE,
        "learn/trainer.py",
        "self._memory.gradients[self._peers.rank].zero_()",
        "self._memory.gradients[self._peers.rank].add_(0)",
        (DENOMINATOR + "weights_of_trainable_tokens_alone_make_the_denominator",),
    ),
    Mutant(
        "reference_is_the_behaviour",
        Mistake.WRONG_PLACE,
        "learn/trainer.py",
        "reference_logprobs=batch.reference_logprobs,",
        "reference_logprobs=batch.behavior_logprobs,",
        (INPUTS + "every_field_of_a_loss_token_is_its_samples_own",),
    ),
    Mutant(
        "old_value_is_the_new_one",
        Mistake.WRONG_PLACE,
        "learn/trainer.py",
        "old_values=batch.values,",
        "old_values=outputs.values,",
        (INPUTS + "every_field_of_a_loss_token_is_its_samples_own",),
    ),
    Mutant(
        "critic_does_not_reach_the_trunk",
        Mistake.FORGET_A_FACTOR,
        "learn/critic.py",
        "hidden.to(wide) @",
        "hidden.detach().to(wide) @",
        (INPUTS + "gradient_of_the_values_error_is_that_of_the_whole_model",),
    ),
    Mutant(
        "last_rank_speaks_for_all",
        Mistake.LOCAL_COUNT,
        "learn/tally.py",
        "mine[name] = mine.get(name, 0.0) + value",
        "mine[name] = value",
        (RANKS + "several_ranks_give_what_one_gives[2-supervised]",),
    ),
    Mutant(
        "means_are_over_the_ranks_own_tokens",
        Mistake.LOCAL_COUNT,
        "learn/tally.py",
        "result.num_loss_tokens += part.num_loss_tokens",
        "result.num_loss_tokens = max(result.num_loss_tokens, part.num_loss_tokens)",
        (RANKS + "several_ranks_give_what_one_gives[2-supervised]",),
    ),
    Mutant(
        "gradient_is_averaged_over_ranks",
        Mistake.DIVIDE_TWICE,
        "learn/optimizer.py",
        'norm = math.sqrt(math.fsum(self._peers.gather("sum',
        'total /= len(gradients)\n        norm = math.sqrt(math.fsum(self._peers.gather("sum',
        (RANKS + "several_ranks_give_what_one_gives[2-supervised]",),
    ),
    Mutant(
        "gradient_is_clipped_by_the_shards_norm",
        Mistake.LOCAL_COUNT,
        "learn/optimizer.py",
        'math.sqrt(math.fsum(self._peers.gather("sum the gradient\'s norm", _square_sum(total))))',
        'math.sqrt(self._peers.gather("sum the gradient\'s norm", _square_sum(total))[self._peers.rank])',
        (RANKS + "several_ranks_give_what_one_gives[2-supervised]",),
    ),
    Mutant(
        "rate_of_zero_still_learns",
        Mistake.FORGET_A_FACTOR,
        "learn/optimizer.py",
        'group["lr"] = learning_rate',
        'group["lr"] = max(learning_rate, 1e-4)',
        ("laws/test_l18_zero_rate.py::test_mismatch_stays_flat_and_the_weights_where_they_are[float32]",),
    ),
    Mutant(
        "layers_keep_everything",
        Mistake.FORGET_A_FACTOR,
        "learn/recompute.py",
        "layer.forward = _Forward(layer, layer.forward, recomputation)",
        "pass",
        ("learn/test_learn_policy.py::test_recomputation_changes_no_bit_and_keeps_less",),
    ),
    Mutant(
        "recomputation_learns_nothing_below_the_last_layer",
        Mistake.FORGET_A_FACTOR,
        "learn/recompute.py",
        "                hidden,\n                attention_mask=attention_mask,",
        "                hidden.detach(),\n                attention_mask=attention_mask,",
        ("learn/test_learn_policy.py::test_recomputation_changes_no_bit_and_keeps_less",),
    ),
    Mutant(
        "long_rows_forget_what_attention_owes_their_input",
        Mistake.FORGET_A_FACTOR,
        "learn/recompute.py",
        "hidden_gradient[:, chunk] += share",
        "hidden_gradient[:, chunk] += 0 * share",
        ("learn/test_learn_recompute.py::test_chunks_change_nothing_beyond_the_order_of_sums",),
    ),
    Mutant(
        "long_rows_keep_the_last_chunks_gradient",
        Mistake.FORGET_A_FACTOR,
        "learn/recompute.py",
        "                total += gradient",
        "                self._sums[index] = gradient",
        ("learn/test_learn_recompute.py::test_chunks_change_nothing_beyond_the_order_of_sums",),
    ),
    Mutant(
        "random_number_goes_by_the_row",
        Mistake.WRONG_PLACE,
        "engines/decode.py",
        "uniforms(self._seeds[rows], positions)",
        "uniforms(np.arange(len(rows)), positions)",
        (KEYED + "a_request_gets_the_same_tokens_in_any_company",),
    ),
    Mutant(
        "random_number_goes_by_the_tokens_sampled_so_far",
        Mistake.WRONG_PLACE,
        "engines/decode.py",
        "positions = self._prompt_lengths[self._prompt_of[rows]] + self._num_sampled[rows]",
        "positions = self._num_sampled[rows]",
        (KEYED + "going_on_from_a_prefix_with_the_same_seed_continues_the_same_sequence",),
    ),
    Mutant(
        "engine_forgets_the_temperature",
        Mistake.FORGET_THE_TEMPERATURE,
        "engines/decode.py",
        "np.array([row.request.temperature for row in rows], dtype=np.float32)",
        "np.ones(len(rows), dtype=np.float32)",
        (SAMPLER + "logprobs_are_those_of_the_distribution_sampled_from",),
    ),
    Mutant(
        "first_micro_batch_alone_is_learned",
        Mistake.LOCAL_COUNT,
        "learn/parameters.py",
        "self._total.add_(parameter.grad)",
        "self._total.copy_(parameter.grad)",
        ("laws/test_l01_cutting.py::test_gradient_is_the_same_for_any_samples_and_any_budgets",),
    ),
    Mutant(
        "publish_does_not_arrive",
        Mistake.WRONG_PLACE,
        "engines/synchronous.py",
        "self._load(weights)",
        "weights.stat()",
        (ARRIVE + "the_fingerprint_after_a_publish_is_the_published_one[plain]",),
    ),
)
