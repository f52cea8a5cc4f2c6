"""An optimizer step's batch: whitening, means over the step, and the divergence from a reference."""

import math

import numpy as np
import pytest
from algorithm_samples import PROMPT, group, sequence, trained
from hypothesis import assume, given
from hypothesis import strategies as st

from algorithms import (
    KlPenalty,
    build_batch,
    build_group,
    clip_range,
    group_mean_advantages,
    max_relative_advantage,
    whiten,
)


def centred(rewards, lengths):
    return group_mean_advantages(rewards)


MIXED = group(sequence(3, 4, reward=1.0), sequence(5, reward=0.0))
FLAT = group(sequence(6, reward=1.0), sequence(7, reward=1.0))
LONG = group(sequence(8, 9, 10, reward=0.0), sequence(11, reward=1.0), sequence(12, reward=None))


def test_a_batch_is_its_groups_one_after_another_and_counts_every_drop():
    batch = build_batch([MIXED, FLAT, LONG], centred)
    separate = [build_group(PROMPT, one.sequences, one.rewards, centred) for one in (MIXED, FLAT, LONG)]
    assert batch.groups == separate
    assert batch.data == [datum for one in separate for datum in one.data]
    assert batch.dropped == {"zero_signal": 2, "unscored": 1}
    assert batch.kl is None


def test_means_are_taken_over_the_whole_step_and_leave_each_groups_own_datums_alone():
    batch = build_batch([MIXED, FLAT, LONG], centred, aggregation="token_mean")
    assert [trained(datum) for datum in batch.data] == [
        pytest.approx(values) for values in ([0.5 / 7] * 2, [-0.5 / 7], [-0.5 / 7] * 3, [0.5 / 7])
    ]
    assert trained(batch.groups[0].data[0]) == [0.5, 0.5]


def test_a_constant_divisor_does_not_depend_on_what_was_sampled():
    batch = build_batch([MIXED], centred, aggregation="constant", constant_length=10)
    assert trained(batch.data[0]) == pytest.approx([0.5 / 20] * 2)


def test_weights_are_scaled_where_the_loss_is_not_linear_in_the_advantage():
    batch = build_batch([MIXED], centred, aggregation="token_mean", scale="weights")
    assert trained(batch.data[0], "weights") == pytest.approx([1 / 3] * 2)
    assert trained(batch.data[0]) == [0.5, 0.5]


def test_a_mean_of_dro_needs_the_weights_scaled_since_its_penalty_has_no_advantage():
    """−Σ w(lp·A − ½β(lp − q)²), with lp half a nat above q everywhere."""

    def dro(batch, beta=0.1):
        inputs = [
            {name: np.array(trained(one, name)) for name in ("weights", "advantages", "logprobs")} for one in batch
        ]
        terms = [one["weights"] * ((one["logprobs"] + 0.5) * one["advantages"] - beta / 8) for one in inputs]
        return -sum(float(term.sum()) for term in terms)

    total = dro(build_batch([MIXED], centred).data)
    by_weights = build_batch([MIXED], centred, aggregation="token_mean", scale="weights")
    by_advantages = build_batch([MIXED], centred, aggregation="token_mean")
    assert dro(by_weights.data) == pytest.approx(total / 3)
    assert dro(by_advantages.data) != pytest.approx(total / 3, rel=0.1)


def test_whitening_gives_the_step_mean_0_and_deviation_1_before_datums_are_made():
    batch = build_batch([MIXED, LONG], centred, whiten=True)
    assert [one.advantages for one in batch.groups] == [[1.0, -1.0], [-1.0, 1.0, None]]
    assert [trained(datum) for datum in batch.data] == [[1.0, 1.0], [-1.0], [-1.0] * 3, [1.0]]


def test_whitening_does_not_give_a_gradient_to_a_group_without_signal():
    batch = build_batch([MIXED, FLAT], lambda rewards, lengths: max_relative_advantage(rewards), whiten=True)
    assert len(batch.data) == 2
    assert batch.groups[1].data == []
    assert batch.dropped == {"zero_signal": 2}


def test_the_kl_term_comes_after_whitening_and_the_divergence_is_measured_over_all_tokens():
    near = group(sequence(3, reward=2.0, reference=[-1.0]), sequence(4, reward=0.0, reference=[-0.5]))
    unscored = group(sequence(5, 6, reward=None, reference=[-0.5, -0.5]), sequence(7, reward=None))
    batch = build_batch([near, unscored], centred, whiten=True, kl=KlPenalty(0.1))
    assert [trained(datum) for datum in batch.data] == [pytest.approx([1.0 - 0.05]), [-1.0]]
    assert batch.kl.k1 == pytest.approx(0.5 / 4)
    assert batch.kl.tokens == 4


def test_clip_bounds_reach_every_datum_of_the_step():
    batch = build_batch([MIXED, LONG], centred, terms=clip_range("tinker", 0.8, 1.2))
    assert all("clip_high_threshold" in datum["loss_inputs"] for datum in batch.data)
    assert len(batch.data) == 4


def test_a_step_in_which_nothing_is_left_is_an_empty_batch():
    batch = build_batch([FLAT], centred, whiten=True, aggregation="token_mean")
    assert (batch.data, batch.dropped) == ([], {"zero_signal": 2})
    assert build_batch([], centred).data == []


def test_whitening_only_centres_what_hardly_differs_and_leaves_the_unscored_out():
    assert whiten([[1.0, 1.0 + 1e-8], [None]]) == [[pytest.approx(-5e-9), pytest.approx(5e-9)], [None]]
    assert whiten([[None], []]) == [[None], []]


@given(st.lists(st.lists(st.none() | st.floats(-100, 100), max_size=6), min_size=1, max_size=6), st.floats(0.1, 10))
def test_whitened_advantages_do_not_depend_on_the_rewards_scale_or_offset(groups, factor):
    values = [value for one in groups for value in one if value is not None]
    assume(len(values) > 1 and max(values) - min(values) > 0.1)
    white = whiten(groups)
    flat = [value for one in white for value in one if value is not None]
    assert math.fsum(flat) / len(flat) == pytest.approx(0.0, abs=1e-9)
    assert math.fsum(value * value for value in flat) / len(flat) == pytest.approx(1.0)
    moved = whiten([[None if value is None else factor * value + 3 for value in one] for one in groups])
    for before, after in zip(white, moved, strict=True):
        assert after == [None if value is None else pytest.approx(value, abs=1e-6) for value in before]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=2, max_size=4), max_size=4))
def test_a_token_mean_makes_the_sum_of_what_each_token_brings_the_mean(drawn):
    groups = [group(*(sequence(*range(n), reward=float(r)) for r, n in one)) for one in drawn]
    plain = [a for datum in build_batch(groups, centred).data for a in trained(datum)]
    scaled = [a for datum in build_batch(groups, centred, aggregation="token_mean").data for a in trained(datum)]
    assert scaled == pytest.approx([a / len(plain) for a in plain])
