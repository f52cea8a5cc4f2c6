"""Groups, aggregation over an optimizer step, SFT batches, seeds and schedules."""

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import (
    NoGradientError,
    aggregation_scales,
    build_group,
    build_loss,
    grpo,
    learning_rate,
    request_seed,
    rl_datum,
    scale_data,
    sft_datum,
    trained_tokens,
)
from algorithms.sft import build_payload, sft_data
from whitney.types import ForwardPayload

LOCAL = SimpleNamespace(provider="local")


def sequence(*tokens, reward=None):
    return {"tokens": list(tokens), "logprobs": [-0.5] * len(tokens), "stop_reason": "stop", "reward": reward}


def advantages_of(datum):
    return [
        a for a, w in zip(*(datum["loss_inputs"][n]["values"] for n in ("advantages", "weights")), strict=True) if w
    ]


def test_a_grpo_group_spreads_each_completions_advantage_over_its_tokens():
    group = build_group([1, 2], [sequence(3, 4), sequence(5)], [1.0, 0.0], grpo.advantages)
    assert [advantages_of(datum) for datum in group.data] == [[1.0, 1.0], [-1.0]]
    assert group.advantages == [1.0, -1.0]
    assert not group.zero_signal
    assert group.dropped_by_reason == {}


def test_a_group_with_equal_rewards_sends_nothing_and_says_so():
    group = build_group([1, 2], [sequence(3), sequence(4), sequence(5)], [0.1, 0.1, 0.1], grpo.advantages)
    assert group.data == []
    assert group.zero_signal
    assert group.dropped_by_reason == {"zero_signal": 3}


def test_completions_that_cannot_be_used_are_counted_by_reason_and_never_poison_the_rest():
    sequences = [sequence(3), sequence(4), sequence(5), sequence(6), sequence()]
    group = build_group([1, 2], sequences, [1.0, 0.0, None, math.nan, 1.0], grpo.advantages)
    assert group.advantages == [1.0, -1.0, None, None, None]
    assert [datum["loss_inputs"]["target_tokens"]["values"][-1] for datum in group.data] == [3, 4]
    assert group.dropped_by_reason == {"unscored": 2, "empty_completion": 1}


@pytest.mark.parametrize(
    ("rewards", "dropped"), [([1.0, None], {"unscored": 1, "too_few_rewards": 1}), ([None, None], {"unscored": 2})]
)
def test_fewer_than_two_usable_rewards_give_no_gradient_and_are_not_called_a_flat_group(rewards, dropped):
    group = build_group([1, 2], [sequence(3), sequence(4)], rewards, grpo.advantages)
    assert group.data == []
    assert not group.zero_signal
    assert group.dropped_by_reason == dropped


def test_sequences_without_their_reward_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="sequences has 2 entries, rewards has 1"):
        build_group([1, 2], [sequence(3), sequence(4)], [1.0], grpo.advantages)


def test_build_loss_turns_a_scored_sample_into_a_payload_of_the_wire():
    sample = {"sequences": [sequence(3, 4, reward=1.0), sequence(5, reward=0.0)]}
    payload = build_loss(sample, 0, {"prompt": {"token_ids": [1, 2]}}, LOCAL)
    ForwardPayload.model_validate(payload)
    assert (payload["loss_function"], payload["loss_config"], len(payload["data"])) == ("importance_sampling", {}, 2)


def test_build_loss_refuses_an_unknown_provider_before_anything_else():
    with pytest.raises(ValueError, match="Unknown provider 'azure'"):
        build_loss({}, 0, {}, SimpleNamespace(provider="azure"))


def test_build_loss_of_a_flat_group_says_that_there_is_no_gradient():
    sample = {"sequences": [sequence(3, reward=1.0), sequence(4, reward=1.0)]}
    with pytest.raises(NoGradientError):
        build_loss(sample, 0, {"prompt": {"token_ids": [1]}}, LOCAL)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("sum", [1, 1]),
        ("token_mean", [1 / 4, 1 / 4]),
        ("sequence_mean", [1 / 2, 1 / 6]),
        ("constant", [1 / 20, 1 / 20]),
    ],
)
def test_each_aggregation_scales_by_its_formula(aggregation, expected):
    assert aggregation_scales([1, 3], aggregation, constant_length=10) == pytest.approx(expected)


def test_scaling_makes_the_sum_a_mean_and_leaves_the_given_datums_alone():
    data = [rl_datum([1], [2], [-1.0], 1.0), rl_datum([1], [2, 3, 4], [-1.0] * 3, 1.0)]
    for aggregation in ("token_mean", "sequence_mean"):
        scaled = scale_data(data, aggregation)
        assert math.fsum(a for datum in scaled for a in advantages_of(datum)) == pytest.approx(1.0)
        assert [trained_tokens(datum) for datum in scaled] == [1, 3]
    assert advantages_of(data[1]) == [1.0, 1.0, 1.0]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_a_mean_over_the_step_does_not_depend_on_how_the_step_is_cut_into_requests(lengths):
    data = [sft_datum([1], list(range(1, length + 1))) for length in lengths]
    whole = scale_data(data, "token_mean", field="weights")
    weights = [sum(datum["loss_inputs"]["weights"]["values"]) for datum in whole]
    assert math.fsum(weights) == pytest.approx(1.0)
    assert weights == pytest.approx([length / sum(lengths) for length in lengths])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: aggregation_scales([1], "mean"), "aggregation 'mean' is unknown"),
        (lambda: aggregation_scales([1], "constant"), "needs constant_length"),
        (lambda: aggregation_scales([0, 1], "token_mean"), "0 trained tokens"),
        (lambda: scale_data([sft_datum([1], [2])], "token_mean"), "no advantages to scale"),
    ],
)
def test_an_aggregation_that_makes_no_sense_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_an_empty_step_scales_to_an_empty_step():
    assert scale_data([], "token_mean") == []


def test_sft_drops_and_counts_what_does_not_fit_and_averages_over_the_rest():
    batch = sft_data([([1, 2], [3]), ([1], [2, 3, 4]), ([1, 2], []), ([1] * 9, [2])], max_sequence_tokens=8)
    assert batch.dropped_by_reason == {"empty_completion": 1, "too_long": 1}
    payload = build_payload(batch.data)
    ForwardPayload.model_validate(payload)
    assert payload["loss_function"] == "cross_entropy"
    assert [datum["loss_inputs"]["weights"]["values"] for datum in payload["data"]] == [[0.0, 0.25], [0.25, 0.25, 0.25]]


def test_sft_refuses_an_empty_prompt_rather_than_dropping_it():
    with pytest.raises(ValueError, match="prompt_tokens is empty"):
        sft_data([([], [1, 2])])


def test_a_requests_seed_is_the_same_in_every_process():
    program = "from algorithms import request_seed; print(request_seed(7, 3, 1, 2))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(answer.stdout) == request_seed(7, 3, 1, 2)


def test_no_two_requests_of_a_run_share_a_seed():
    seeds = {request_seed(r, c, g, k) for r in range(5) for c in range(10) for g in range(10) for k in range(4)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert request_seed(1, 11, 1) != request_seed(1, 1, 11) != request_seed(11, 1, 1)


def test_a_constant_rate_stays():
    assert {learning_rate(step, 5, 1e-4) for step in range(5)} == {1e-4}


def test_warm_up_climbs_from_above_zero_to_the_base_rate():
    rates = [learning_rate(step, 8, 1.0, "constant", warmup_steps=3) for step in range(5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(("schedule", "middle"), [("linear", 0.55), ("cosine", 0.55)])
def test_a_decay_passes_its_middle_and_ends_at_the_final_fraction(schedule, middle):
    rates = [learning_rate(step, 11, 1.0, schedule, final_fraction=0.1) for step in range(11)]
    assert (rates[0], rates[5], rates[10]) == pytest.approx((1.0, middle, 0.1))
    assert rates == sorted(rates, reverse=True)


def test_cosine_leaves_the_base_rate_more_slowly_than_linear():
    assert learning_rate(2, 11, 1.0, "cosine") > learning_rate(2, 11, 1.0, "linear")


def test_a_schedule_of_one_step_takes_the_base_rate():
    assert learning_rate(0, 1, 2e-4, "linear") == 2e-4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"schedule": "step"}, "schedule 'step' is unknown"),
        ({"step": 10}, "step is 10"),
        ({"warmup_steps": 11}, "warmup_steps is 11"),
        ({"base": -1.0}, "base learning rate is -1.0"),
        ({"final_fraction": 1.5}, "final_fraction is 1.5"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        learning_rate(**{"step": 0, "total_steps": 10, "base": 1.0, **arguments})


def test_importing_algorithms_loads_no_framework():
    program = (
        "import sys, algorithms, algorithms.sft;"
        "print([m for m in ('prefect', 'httpx', 'pydantic', 'torch', 'orjson', 'whitney') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
