"""The losses as numbers: worked values, and derivatives beside finite differences."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from gateway.losses import LOSS_DEFAULTS
from gateway.providers.local.losses import DPPO_VARIANTS, LOSSES, LossGradient, TrainedTokens, evaluate

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


STOPS_A_GRADIENT = {"cispo", "gspo"}  # by definition; their derivatives have tests of their own


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - STOPS_A_GRADIENT))
def test_the_derivative_is_the_finite_difference(name: str) -> None:
    given = random_tokens()
    result = evaluated(name, given)
    for index in range(len(given.logprobs)):
        assert float(result.gradient[index]) == pytest.approx(slope(name, given, index), abs=1e-6)


def test_the_derivative_of_cispo_is_its_coefficient() -> None:
    given = random_tokens()
    coefficient = (given.logprobs - given.sampler_logprobs).exp().clamp(0, 4)
    expected = -given.weights * coefficient * given.advantages
    torch.testing.assert_close(evaluated("cispo", given).gradient, expected)


def test_the_derivative_of_gspo_is_the_sequence_ratio_where_it_is_not_clipped() -> None:
    given = random_tokens(spread=0.05)
    result = evaluated("gspo", given)
    for sequence in (0, 1):
        own = given.sequence == sequence
        weights, log_ratio = given.weights[own], (given.logprobs - given.sampler_logprobs)[own]
        ratio = torch.exp((weights * log_ratio).sum() / weights.sum())
        torch.testing.assert_close(result.gradient[own], -weights * ratio * given.advantages[own])


def random_tokens(spread: float = 1.0) -> TrainedTokens:
    generator = torch.Generator().manual_seed(11)
    logprobs = -torch.rand(12, generator=generator, dtype=torch.float64) * 3
    noise = torch.randn(12, generator=generator, dtype=torch.float64)
    return TrainedTokens(
        logprobs,
        torch.rand(12, generator=generator, dtype=torch.float64) + 0.5,
        torch.arange(12) // 6,
        logprobs + spread * noise,
        torch.randn(12, generator=generator, dtype=torch.float64),
    )


def slope(name: str, given: TrainedTokens, index: int, width: float = 1e-6) -> float:
    def at(offset: float) -> float:
        moved = given.logprobs.clone()
        moved[index] += offset
        return loss(name, dataclasses.replace(given, logprobs=moved))

    return (at(width) - at(-width)) / (2 * width)


def test_an_evaluation_leaves_no_graph_behind() -> None:
    result: LossGradient = evaluated("ppo", random_tokens())
    assert not result.loss.requires_grad
    assert not result.gradient.requires_grad
