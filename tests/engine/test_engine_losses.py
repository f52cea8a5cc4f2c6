"""The losses as numbers: worked values, and every value and derivative beside an independent implementation's."""

import dataclasses
import math

import pytest
import torch
from reference_losses import CONFIGS, Tokens, gradient, value
from torch import Tensor

from gateway.losses import LOSS_DEFAULTS
from gateway.providers.local.losses import (
    DPPO_VARIANTS,
    LOSSES,
    LossGradient,
    TrainedTokens,
    TrainedValues,
    evaluate,
    evaluate_critic,
)

FUNCTIONS = LOSSES | {f"dppo {variant}": function for variant, function in DPPO_VARIANTS.items()}


def tokens(
    logprobs: list[float],
    sampler: list[float] | None = None,
    advantages: list[float] | None = None,
    weights: list[float] | None = None,
    sequence: list[int] | None = None,
) -> TrainedTokens:
    def doubles(values: list[float] | None, default: float) -> Tensor:
        return torch.tensor(values or [default] * len(logprobs), dtype=torch.float64)

    return TrainedTokens(
        doubles(logprobs, 0),
        doubles(weights, 1),
        torch.tensor(sequence or [0] * len(logprobs)),
        doubles(sampler, -1),
        doubles(advantages, 1),
    )


def evaluated(name: str, given: TrainedTokens, **config: float) -> LossGradient:
    return evaluate(FUNCTIONS[name], given, {**LOSS_DEFAULTS[name.split(maxsplit=1)[0]], **config})


def loss(name: str, given: TrainedTokens, **config: float) -> float:
    return float(evaluated(name, given, **config).loss.sum())


def test_cross_entropy_is_the_weighted_negative_logprob() -> None:
    assert loss("cross_entropy", tokens([-1.0, -2.0], weights=[1.0, 0.5])) == pytest.approx(2.0)


def test_importance_sampling_weighs_the_advantage_by_the_ratio() -> None:
    assert loss("importance_sampling", tokens([-1.0], [-2.0], [0.5])) == pytest.approx(-math.e / 2)


def test_ppo_holds_a_good_token_at_its_bound_and_lets_its_gradient_go() -> None:
    result = evaluated("ppo", tokens([-1.0], [-2.0], [1.0]))
    assert result.loss.tolist() == pytest.approx([-1.2])
    assert result.gradient.tolist() == [0.0]
    assert result.clipped is not None
    assert result.clipped.tolist() == [True]


def test_ppo_keeps_pushing_down_a_bad_token_that_became_likelier() -> None:
    result = evaluated("ppo", tokens([-1.0], [-2.0], [-1.0]))
    assert result.loss.tolist() == pytest.approx([2.718281828])
    assert result.gradient.tolist() == pytest.approx([2.718281828])


def test_ppo_takes_its_bounds_from_the_config_or_from_the_datum_alike() -> None:
    given = tokens([-1.0, -1.0], [-1.5, -0.5], [1.0, -1.0])
    bound = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}
    per_token = dataclasses.replace(
        given, clip_low=torch.full((2,), 0.9).double(), clip_high=torch.full((2,), 1.1).double()
    )
    assert loss("ppo", given, **bound) == pytest.approx(loss("ppo", per_token))
    assert loss("ppo", given, **bound) != pytest.approx(loss("ppo", given))


def test_cispo_clamps_the_coefficient_but_never_the_gradient() -> None:
    result = evaluated("cispo", tokens([-1.0], [-2.0], [1.0]), clip_high_threshold=4.0)
    assert result.loss.tolist() == pytest.approx([2.718281828])
    assert result.gradient.tolist() == pytest.approx([-2.718281828])
    held = evaluated("cispo", tokens([-1.0], [-2.0], [1.0]), clip_high_threshold=2.0)
    assert held.gradient.tolist() == pytest.approx([-2.0])


def test_cispos_bounds_are_those_of_the_ratio_itself() -> None:
    far = tokens([math.log(5.5) - 2], [-2.0], [1.0])
    assert evaluated("cispo", far, clip_high_threshold=5.0).gradient.tolist() == pytest.approx([-5.0])
    low = tokens([math.log(0.5) - 2], [-2.0], [1.0])
    assert evaluated("cispo", low, clip_low_threshold=0.8).gradient.tolist() == pytest.approx([-0.8])


def test_ppos_low_bound_is_that_of_the_ratio_itself() -> None:
    bad = tokens([math.log(0.7) - 2], [-2.0], [-1.0])
    assert loss("ppo", bad, clip_low_threshold=0.8) == pytest.approx(0.8)
    assert loss("ppo", bad, clip_low_threshold=0.6) == pytest.approx(0.7)


def test_dro_adds_a_quadratic_penalty_around_the_sampler() -> None:
    assert loss("dro", tokens([-1.0], [-2.0], [1.0]), beta=0.1) == pytest.approx(1.05)


def test_gspo_gives_every_token_the_ratio_of_its_sequence() -> None:
    assert loss("gspo", tokens([-1.0, -1.0], [-1.2, -1.0], [1.0, 1.0])) == pytest.approx(-2.21034, abs=1e-5)


def test_gspo_keeps_sequences_apart() -> None:
    apart = tokens([-1.0, -1.0], [-1.2, -1.0], sequence=[0, 1])
    assert loss("gspo", apart) == pytest.approx(-min(math.exp(0.2), 1.2) - 1.0)


def test_dppo_masks_a_good_token_that_became_much_likelier() -> None:
    result = evaluated("dppo", tokens([-0.2], [-0.6], [1.0]))
    assert result.loss.tolist() == [0.0]
    assert result.gradient.tolist() == [0.0]
    assert loss("dppo", tokens([-0.2], [-0.6], [1.0]), delta_high=0.5) == pytest.approx(-math.exp(0.4))
    assert loss("dppo", tokens([-0.2], [-0.6], [-1.0])) == pytest.approx(math.exp(0.4))


def test_dppo_by_kl_measures_the_move_of_this_token_against_all_others() -> None:
    p, mu = math.exp(-0.2), math.exp(-0.6)
    divergence = mu * -0.4 + (1 - mu) * math.log((1 - mu) / (1 - p))
    assert divergence == pytest.approx(0.19192, abs=1e-5)
    likelier, unlikelier = tokens([-0.2], [-0.6], [1.0]), tokens([-0.6], [-0.2], [-1.0])
    assert loss("dppo binary_kl", likelier) == pytest.approx(-math.exp(0.4))  # by total variation it is masked
    assert loss("dppo binary_kl", likelier, delta_high=divergence - 1e-6) == 0
    assert loss("dppo binary_kl", likelier, delta_high=divergence + 1e-6) != 0
    back = p * 0.4 + (1 - p) * math.log((1 - p) / (1 - mu))
    assert loss("dppo binary_kl", unlikelier, delta_low=back - 1e-6) == 0
    assert loss("dppo binary_kl", unlikelier, delta_low=back + 1e-6) != 0


def test_dppo_by_kl_lets_a_token_return_from_however_far() -> None:
    assert loss("dppo binary_kl", tokens([-0.01], [-5.0], [-1.0])) == pytest.approx(math.exp(4.99))
    assert loss("dppo binary_kl", tokens([-5.0], [-0.01], [1.0])) == pytest.approx(-math.exp(-4.99))


@pytest.mark.parametrize("sampler", [0.0, 1e-7])
def test_dppo_by_kl_stands_a_certain_token(sampler: float) -> None:
    result = evaluated("dppo binary_kl", tokens([0.0, -0.5, 1e-7], [sampler, sampler, -0.5]))
    assert torch.isfinite(result.loss).all()
    assert result.clipped is not None
    assert result.clipped.tolist() == [False, False, True]


def test_sapo_gates_softly_and_differently_by_the_sign_of_the_advantage() -> None:
    sigmoid = 1 / (1 + math.exp(-1.0 * (math.e - 1)))
    assert loss("sapo", tokens([-1.0], [-2.0], [1.0])) == pytest.approx(-4 * sigmoid)
    assert loss("sapo", tokens([-1.0], [-1.0], [-1.0])) == pytest.approx(4 / 1.05 / 2)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"dppo"}))  # which is one of its variants
def test_value_and_derivative_are_those_of_an_independent_implementation(name: str) -> None:
    given, config = random_tokens(), CONFIGS.get(name, {})
    result = evaluated(name, given, **config)
    tokens, now = in_numpy(given), given.logprobs.numpy()
    assert result.loss.tolist() == pytest.approx(value(name, now, tokens).tolist(), rel=1e-12)
    assert result.gradient.tolist() == pytest.approx(gradient(name, now, tokens).tolist(), rel=1e-6, abs=1e-8)


def test_so_are_those_of_the_critics_loss() -> None:
    drawn = random_tokens()
    given = TrainedValues(drawn.logprobs, drawn.weights, drawn.sampler_logprobs, drawn.advantages)
    result = evaluate_critic(given, CONFIGS["ppo_critic"])
    inputs = {"values": drawn.sampler_logprobs.numpy(), "returns": drawn.advantages.numpy()}
    tokens, now = Tokens(drawn.weights.numpy(), drawn.sequence.numpy(), inputs), drawn.logprobs.numpy()
    assert result.loss.tolist() == pytest.approx(value("ppo_critic", now, tokens).tolist(), rel=1e-12)
    assert result.gradient.tolist() == pytest.approx(gradient("ppo_critic", now, tokens).tolist(), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_token_of_weight_zero_has_no_loss_and_exactly_no_gradient(name: str) -> None:
    given = random_tokens()
    given.weights[::3] = 0  # as at prompt positions, whatever else stands there
    result = evaluated(name, given, **CONFIGS.get(name, {}))
    assert result.loss[::3].tolist() == [0] * 20
    assert result.gradient[::3].tolist() == [0] * 20
    assert result.gradient.any()


def test_a_value_of_weight_zero_has_exactly_no_gradient_either() -> None:
    result = evaluate_critic(critic([1.0, 1.0], [0.5, 0.5], [2.0, 2.0], weights=[0.0, 1.0]), {"value_clip": 0.2})
    assert (result.loss[0], result.gradient[0]) == (0, 0)
    assert result.loss[1] > 0


def test_the_critics_loss_takes_the_worse_of_the_free_and_the_held_value() -> None:
    # v = 1, v_old = .5, R = 2: held at .7, ½·1.3² = .845 beside ½·1² = .5; what is held has no gradient.
    result = evaluate_critic(critic([1.0], [0.5], [2.0]), {"value_clip": 0.2})
    assert result.loss.tolist() == pytest.approx([0.845])
    assert result.gradient.tolist() == [0]
    assert result.clipped is not None
    assert result.clipped.tolist() == [True]
    free = evaluate_critic(critic([1.0], [0.5], [2.0]), {"value_clip": 0.5})
    assert free.loss.tolist() == pytest.approx([0.5])
    assert free.gradient.tolist() == pytest.approx([-1.0])


def critic(
    values: list[float], old_values: list[float], returns: list[float], weights: list[float] | None = None
) -> TrainedValues:
    rows = (values, weights or [1.0] * len(values), old_values, returns)
    return TrainedValues(*(torch.tensor(row, dtype=torch.float64) for row in rows))


def random_tokens() -> TrainedTokens:
    """Sixty tokens of ten datums, at rest and far from the sampler, with advantages of both signs."""
    generator = torch.Generator().manual_seed(11)

    def uniform() -> Tensor:
        return torch.rand(60, generator=generator, dtype=torch.float64)

    logprobs, weights = -uniform() * 6, uniform() + 0.5
    moved = torch.randn(10, generator=generator, dtype=torch.float64).repeat_interleave(6) * 0.4
    noise = torch.randn(60, generator=generator, dtype=torch.float64) * 0.1
    sampler = (logprobs - moved - noise).clamp(max=-1e-3)
    return TrainedTokens(
        logprobs, weights, torch.arange(60) // 6, sampler, torch.randn(60, generator=generator).double()
    )


def in_numpy(given: TrainedTokens) -> Tokens:
    inputs = {"logprobs": given.sampler_logprobs.numpy(), "advantages": given.advantages.numpy()}
    return Tokens(given.weights.numpy(), given.sequence.numpy(), inputs)


def test_an_evaluation_leaves_no_graph_behind() -> None:
    result: LossGradient = evaluated("ppo", random_tokens())
    assert not result.loss.requires_grad
    assert not result.gradient.requires_grad
