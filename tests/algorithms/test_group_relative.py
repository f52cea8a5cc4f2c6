"""Every group-relative algorithm: its advantages, its payload on each provider, and what it refuses."""

import importlib
import math
from itertools import pairwise

import numpy as np
import pytest
from algorithm_samples import PROMPT, REQUEST, on, sequence, trained
from hypothesis import given
from hypothesis import strategies as st

from algorithms import (
    ALGORITHMS,
    NO_TERMS,
    PROVIDER_LOSS_SUPPORT,
    KlPenalty,
    NoGradientError,
    build_group,
    cispo,
    clip_range,
    dapo,
    dppo,
    drgrpo,
    dro,
    grpo,
    grpo_len_norm,
    grpo_nostd,
    gspo,
    kl_adjust_advantages,
    maxrl,
    moving_baseline,
    ppo,
    reinforce,
    reinforce_pp,
    rloo,
    sapo,
)
from gateway.emulation import RULES, check_operation
from gateway.errors import GatewayError
from whitney.types import ForwardPayload

THREE_OF_EIGHT, EIGHT_LENGTHS = [1.0] * 3 + [0.0] * 5, [1, 2, 4, 1, 2, 4, 5, 8]
CENTRED, STANDARD = [0.625] * 3 + [-0.375] * 5, [1.2910] * 3 + [-0.7746] * 5

ADVANTAGES = {
    grpo: STANDARD,
    grpo_nostd: CENTRED,
    grpo_len_norm: [a / n for a, n in zip(STANDARD, EIGHT_LENGTHS, strict=True)],
    drgrpo: [a / n for a, n in zip(CENTRED, EIGHT_LENGTHS, strict=True)],
    reinforce: CENTRED,
    ppo: STANDARD,
    cispo: STANDARD,
    gspo: STANDARD,
    dppo: STANDARD,
    dro: CENTRED,
    dapo: STANDARD,
    sapo: STANDARD,
    rloo: [0.7143] * 3 + [-0.4286] * 5,
    reinforce_pp: CENTRED,
    maxrl: [0.0] * 3 + [-1.0] * 5,
}

BOUNDS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
LOSS_CONFIG = {
    ppo: BOUNDS,
    dapo: {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28},
    dppo: {"delta_low": 0.2, "delta_high": 0.2},
    sapo: {"tau_pos": 1.0, "tau_neg": 1.05},
}
"""What modal and local are sent; an algorithm that is not here sends nothing."""

LOSSES = {ppo: "ppo", dapo: "ppo", cispo: "cispo", gspo: "gspo", dppo: "dppo", dro: "dro", sapo: "sapo"}

EVERY = pytest.mark.parametrize("maths", ADVANTAGES, ids=lambda maths: maths.__name__.removeprefix("algorithms."))


def sampled():
    """Two completions, right and wrong, with a reference that is half a nat below the policy everywhere."""
    return {
        "sequences": [
            sequence(3, 4, reward=1.0, reference=[-1.0, -1.0]),
            sequence(5, reward=0.0, reference=[-1.0]),
        ]
    }


@EVERY
def test_three_right_of_eight_gives_the_published_advantages(maths):
    assert maths.advantages(THREE_OF_EIGHT, EIGHT_LENGTHS) == pytest.approx(ADVANTAGES[maths], abs=5e-5)


@EVERY
@pytest.mark.parametrize("bad", [None, math.nan])
def test_one_unusable_reward_is_left_out_and_changes_nothing_else(maths, bad):
    with_it = maths.advantages([1.0, bad, 0.0, 0.0], [1, 9, 2, 3])
    assert with_it.pop(1) is None
    assert with_it == maths.advantages([1.0, 0.0, 0.0], [1, 2, 3])


@EVERY
@pytest.mark.parametrize("provider", ["modal", "tinker", "local"])
def test_build_loss_sends_what_the_provider_takes_and_refuses_where_it_has_no_such_loss(maths, provider):
    loss = LOSSES.get(maths, "importance_sampling")
    assert loss == maths.LOSS_FUNCTION
    if loss not in PROVIDER_LOSS_SUPPORT[provider]:
        with pytest.raises(ValueError, match=f"{provider} does not advertise loss_function='{loss}'"):
            maths.build_loss(sampled(), 0, REQUEST, on(provider))
        return
    payload = maths.build_loss(sampled(), 0, REQUEST, on(provider))
    check_operation(RULES[provider], "policy", "forward_backward", ForwardPayload.model_validate(payload))
    assert payload["loss_function"] == loss
    expected = cispo.loss_terms(provider).loss_config if maths is cispo else LOSS_CONFIG.get(maths, {})
    assert payload["loss_config"] == ({} if provider == "tinker" else expected)


@EVERY
@pytest.mark.parametrize("provider", ["modal", "tinker"])
def test_what_build_loss_refuses_the_emulated_provider_would_refuse_too(maths, provider):
    refused = maths.LOSS_FUNCTION not in PROVIDER_LOSS_SUPPORT[provider]
    payload = ForwardPayload.model_validate(maths.build_loss(sampled(), 0, REQUEST, on("local")))
    payload = payload.model_copy(update={"loss_config": {}})  # the scalars are not tinker's way
    if not refused:
        check_operation(RULES[provider], "policy", "forward_backward", payload)
        return
    with pytest.raises(GatewayError, match=maths.LOSS_FUNCTION):
        check_operation(RULES[provider], "policy", "forward_backward", payload)


@EVERY
def test_equal_rewards_send_nothing_unless_a_kl_term_gives_them_a_gradient(maths):
    sample = {"sequences": [sequence(n, reward=0.1, reference=[-0.75]) for n in (3, 4, 5)]}
    if maths is reinforce_pp:
        payload = maths.build_loss(sample, 0, REQUEST, on("local"))
        assert [trained(datum) for datum in payload["data"]] == [[pytest.approx(-0.05 * 0.5 * 0.25**2)]] * 3
        return
    with pytest.raises(NoGradientError):
        maths.build_loss(sample, 0, REQUEST, on("local"))


@EVERY
def test_an_unknown_provider_and_a_group_of_one_are_refused(maths):
    with pytest.raises(ValueError, match="Unknown provider 'azure'"):
        maths.build_loss(sampled(), 0, REQUEST, on("azure"))
    with pytest.raises(ValueError, match=r"got 1 reward.*at least two"):
        maths.advantages([1.0], [1])


@EVERY
def test_the_file_says_in_order_what_a_reader_looks_for(maths):
    headings = [
        "Contract:",
        "Maths:",
        "Loss per provider:",
        "Fails closed when:",
        "Deviates from the paper by:",
        "Paper:",
    ]
    places = [maths.__doc__.find(f"\n{heading} ") for heading in headings]
    assert -1 not in places
    assert places == sorted(places)


def test_every_algorithm_of_the_registry_has_a_file_of_its_name():
    for name, row in ALGORITHMS.items():
        if name == "custom":
            continue
        maths = importlib.import_module(f"algorithms.{name}")
        assert {maths.LOSS_FUNCTION} <= set(row.losses)
        assert all(number in maths.__doc__ for number in row.paper.removeprefix("arXiv ").split(", "))


@pytest.mark.parametrize(("maths", "low", "high"), [(ppo, 0.8, 1.2), (dapo, 0.8, 1.28)])
def test_tinker_finds_the_bounds_on_every_datum(maths, low, high):
    payload = maths.build_loss(sampled(), 0, REQUEST, on("tinker"))
    assert trained(payload["data"][0], "clip_low_threshold") == [low, low]
    assert trained(payload["data"][0], "clip_high_threshold") == [high, high]


@pytest.mark.parametrize("maths", [ppo, dapo, gspo])
def test_bounds_that_are_left_to_the_provider_are_not_sent(maths):
    for provider in ("modal", "local"):
        assert maths.loss_terms(provider, None, None) == NO_TERMS


@pytest.mark.parametrize("maths", [ppo, dapo, gspo])
def test_bounds_are_passed_on_as_bounds(maths):
    assert maths.loss_terms("local", 0.9, 1.5) == clip_range("local", 0.9, 1.5)


def test_cispo_leaves_tinkers_config_and_datums_empty():
    payload = cispo.build_loss(sampled(), 0, REQUEST, on("tinker"))
    assert payload["loss_config"] == {}
    assert "clip_high_threshold" not in payload["data"][0]["loss_inputs"]
    assert cispo.loss_terms("tinker", None, None) == NO_TERMS


@pytest.mark.parametrize(("low", "high"), [(0.0, 5.0), (0.5, None)])
def test_cispo_refuses_bounds_that_tinker_could_not_be_told(low, high):
    with pytest.raises(ValueError, match=f"clip_low is {low}, clip_high is {high}.*leave both out"):
        cispo.loss_terms("tinker", low, high)


@pytest.mark.parametrize(("provider", "high"), [("modal", 5.0), ("local", 4.0)])
def test_cispos_own_bounds_are_each_providers(provider, high):
    assert cispo.loss_terms(provider).loss_config == {"clip_low_threshold": 0.0, "clip_high_threshold": high}


def test_gspos_paper_has_much_narrower_bounds_than_the_server():
    terms = gspo.loss_terms("modal", gspo.PAPER_LOW, gspo.PAPER_HIGH)
    assert terms.loss_config == {"clip_low_threshold": 0.9997, "clip_high_threshold": 1.0004}


def test_dros_beta_goes_to_local_and_stays_away_from_tinker():
    assert dro.loss_terms("local", 0.1).loss_config == {"beta": 0.1}
    assert dro.loss_terms("local") == dro.loss_terms("tinker") == NO_TERMS
    with pytest.raises(ValueError, match=r"beta is 0\.1: tinker's dro takes an empty loss_config"):
        dro.loss_terms("tinker", 0.1)
    with pytest.raises(ValueError, match="modal does not advertise loss_function='dro'"):
        dro.loss_terms("modal", 0.1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dppo.loss_terms("local", -0.1, 0.2), r"delta_low is -0\.1"),
        (lambda: dppo.loss_terms("local", 0.2, math.inf), "delta_high is inf"),
        (lambda: dro.loss_terms("local", -1.0), r"beta is -1\.0"),
        (lambda: sapo.loss_terms("local", tau_pos=0.0), r"tau_pos is 0\.0"),
        (lambda: sapo.loss_terms("local", tau_neg=math.nan), "tau_neg is nan"),
        (lambda: drgrpo.advantages([1.0, 0.0], [1, 2], normalizer="constant"), "needs max_tokens"),
        (lambda: drgrpo.advantages([1.0, 0.0], [1, 2], normalizer="tokens"), "normalizer 'tokens' is unknown"),
        (lambda: reinforce.advantages([1.0, 0.0], [1, 2], baseline="value"), "baseline 'value' is unknown"),
        (lambda: maxrl.advantages([1.0, 0.0], [1, 2], estimator="max"), "estimator 'max' is unknown"),
        (lambda: reinforce_pp.penalty("k3"), "kl 'k3' is unknown"),
        (lambda: reinforce_pp.penalty("k1", -0.1), r"the KL coefficient is -0\.1"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name_and_value(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    ("provider", "missing"),
    [
        ("modal", "SkyRL has the loss, sapo_policy_loss.*fixed list of seven names"),
        ("tinker", "the losses that tinker publishes"),
    ],
)
def test_sapo_says_exactly_what_is_missing_and_offers_no_stand_in(provider, missing):
    with pytest.raises(ValueError, match=rf"{missing}.*no clipped loss stands in.*Providers that have it: local"):
        sapo.build_loss(sampled(), 0, REQUEST, on(provider))


def test_drgrpos_constant_normalizer_is_the_same_for_every_completion():
    advantages = drgrpo.advantages([1.0, 0.0], [1, 7], normalizer="constant", max_tokens=10)
    assert advantages == [0.05, -0.05]


def test_reinforces_moving_baseline_gives_equal_rewards_a_gradient():
    advantages = reinforce.advantages([1.0, 1.0, None], [1, 2, 3], baseline="moving", earned=[0.0, 0.5], decay=0.5)
    assert advantages == [pytest.approx(2 / 3), pytest.approx(2 / 3), None]
    assert reinforce.advantages([1.0], [1], baseline="moving") == [1.0]
    assert moving_baseline([0.0, 0.5], decay=0.5) == pytest.approx(1 / 3)


def test_maxrls_two_estimators_are_named_and_differ():
    paper = maxrl.advantages(THREE_OF_EIGHT, EIGHT_LENGTHS, estimator="mean_normalized")
    assert paper == pytest.approx([1.6667] * 3 + [-1.0] * 5, abs=5e-5)
    assert maxrl.advantages([1.0, 3.0, 2.0], [1, 1, 1]) == [-2.0, 1.0, -1.0]


def test_rloos_reference_is_optional_and_shapes_the_reward():
    sample = {
        "sequences": [
            sequence(3, 4, reward=1.0, reference=[-0.6, -0.6]),
            sequence(5, 6, reward=0.0, reference=[-0.7, -0.7]),
        ]
    }
    plain = rloo.build_loss(sample, 0, REQUEST, on("modal"))
    assert [trained(datum) for datum in plain["data"]] == [[1.0, 1.0], [-1.0, -1.0]]
    shaped = rloo.build_loss(sample, 0, REQUEST, on("modal"), kl=KlPenalty(0.5, place="reward"))
    assert [trained(datum) for datum in shaped["data"]] == [pytest.approx([1.1, 1.1]), pytest.approx([-1.1, -1.1])]


def test_dapo_leaves_out_what_max_tokens_cut_off():
    sequences = [
        sequence(3, reward=1.0),
        sequence(4, reward=0.0),
        sequence(5, reward=1.0, stop_reason="length"),
    ]
    payload = dapo.build_loss({"sequences": sequences}, 0, REQUEST, on("local"))
    assert [trained(datum) for datum in payload["data"]] == [[1.0], [-1.0]]


SAMPLED, REFERENCE = [-0.5, -1.0, -2.0], [-0.75, -2.0, -1.5]  # d = .25, 1, −.5


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        ("k2", [0.5 * 0.25**2, 0.5, 0.5 * 0.5**2]),
        ("k1", [0.75, 0.5, -0.5]),  # Σ from the token on: .25+1−.5, 1−.5, −.5
        ("k2_gradient", [0.25, 1.0, -0.5]),
    ],
)
def test_reinforce_pps_three_kl_terms_have_their_formulas(kl, expected):
    penalties = reinforce_pp.penalty(kl, 0.1)(SAMPLED, REFERENCE)
    assert penalties == pytest.approx([0.1 * value for value in expected])


def test_the_k2_gradient_is_the_signed_gradient_of_the_k2_loss():
    """By finite differences: the advantage −β·d gives a loss at ratio 1 whose gradient is that of β·½(lp − ref)²."""
    beta, step = 0.1, 1e-6
    reference = np.array(REFERENCE)
    penalties = np.array(reinforce_pp.penalty("k2_gradient", beta)(SAMPLED, REFERENCE))

    def surrogate(logprobs):
        return float(-np.sum(np.exp(logprobs - np.array(SAMPLED)) * -penalties))

    def k2_loss(logprobs):
        return float(beta * np.sum(0.5 * (logprobs - reference) ** 2))

    for token in range(len(SAMPLED)):
        nudge = np.zeros(len(SAMPLED))
        nudge[token] = step
        slopes = [(f(SAMPLED + nudge) - f(SAMPLED - nudge)) / (2 * step) for f in (surrogate, k2_loss)]
        assert slopes[0] == pytest.approx(slopes[1], abs=1e-8)
    adjusted = kl_adjust_advantages([0.0] * 3, SAMPLED, REFERENCE, kl_coef=beta)
    assert adjusted == pytest.approx(list(-penalties))


def test_reinforce_pp_sends_the_groups_advantage_less_the_kl_term():
    payload = reinforce_pp.build_loss(sampled(), 0, REQUEST, on("modal"))
    kl = 0.05 * 0.5 * 0.5**2
    assert [trained(datum) for datum in payload["data"]] == [pytest.approx([0.5 - kl] * 2), pytest.approx([-0.5 - kl])]


def test_reinforce_pp_without_a_reference_is_refused_with_the_missing_number():
    sample = {"sequences": [sequence(3, 4, reward=1.0), sequence(5, reward=0.0)]}
    with pytest.raises(ValueError, match="sequence 0 has 2 tokens and none reference_logprobs"):
        reinforce_pp.build_loss(sample, 0, REQUEST, on("local"))


@pytest.mark.parametrize("kl", ["k2", "k1", "k2_gradient"])
def test_a_kl_coefficient_of_0_leaves_the_plain_algorithm(kl):
    rewards = [0.0, 0.0]
    sequences = [one | {"reward": 0.0} for one in sampled()["sequences"]]
    built = build_group(PROMPT, sequences, rewards, reinforce_pp.advantages, kl=reinforce_pp.penalty(kl, 0.0))
    assert built.data == []


REWARDS = st.lists(st.integers(-20, 20).map(float), min_size=2, max_size=8)


@EVERY
@given(rewards=REWARDS, offset=st.integers(-20, 20), data=st.data())
def test_a_common_offset_of_the_rewards_changes_no_advantage(maths, rewards, offset, data):
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=len(rewards), max_size=len(rewards)))
    moved = maths.advantages([reward + offset for reward in rewards], lengths)
    assert moved == pytest.approx(maths.advantages(rewards, lengths), abs=1e-9)


@EVERY
@given(rewards=REWARDS, data=st.data())
def test_a_better_reward_never_has_the_smaller_advantage(maths, rewards, data):
    """With equal lengths; and the order of the completions does not matter."""
    lengths = [3] * len(rewards)
    advantages = maths.advantages(rewards, lengths)
    for better, worse in pairwise(rewards):
        first, second = advantages[rewards.index(better)], advantages[rewards.index(worse)]
        assert (first >= second) if better >= worse else (first <= second)
    order = data.draw(st.permutations(range(len(rewards))))
    shuffled = maths.advantages([rewards[place] for place in order], lengths)
    assert shuffled == pytest.approx([advantages[place] for place in order])
