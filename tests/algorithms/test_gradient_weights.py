import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import rl_datum, sft_datum
from algorithms.gradient_weights import at_trained, weighted_data


def weights_of(datum):
    return datum["loss_inputs"]["weights"]["values"]


def test_the_sum_of_squares_has_the_worked_weights():
    lp = [-1.0, -2.0]
    (datum,) = weighted_data([sft_datum([5], [6, 7])], [[2 * value for value in lp]])
    assert weights_of(datum) == [2.0, 4.0]


def test_gradients_may_come_for_every_position_or_for_the_trained_ones():
    datum = sft_datum([1, 2, 3], [4, 5])
    everywhere = weighted_data([datum], [[9.0, 9.0, -0.5, 0.25]])
    assert everywhere == weighted_data([datum], [[-0.5, 0.25]])
    assert weights_of(everywhere[0]) == [0.0, 0.0, 0.5, -0.25]


def test_only_what_cross_entropy_takes_is_left_of_a_datum_and_the_given_one_is_untouched():
    datum = rl_datum([1, 2], [3], [-0.5], 1.0)
    (weighted,) = weighted_data([datum], [[-3.0]])
    assert sorted(weighted["loss_inputs"]) == ["target_tokens", "weights"]
    assert weights_of(datum) == [0.0, 1.0]


def test_a_datum_without_a_gradient_is_dropped_and_all_of_them_leave_nothing():
    data = [sft_datum([1], [2, 3]), sft_datum([1], [4, 5])]
    (kept,) = weighted_data(data, [[0.0, 0.0], [0.0, 1.0]])
    assert kept["loss_inputs"]["target_tokens"]["values"] == [4, 5]
    assert weighted_data(data, [[0.0, -0.0], [0.0, 0.0]]) == []


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_the_weights_descend_any_loss_just_as_finite_differences_say(logits):
    """A policy of four logits, one token after another: C = sin(lp_0)·lp_1² + lp_1."""
    theta, targets = np.array(logits), (0, 2)

    def logprobs(theta):
        return np.array([theta[t] - np.log(np.sum(np.exp(theta))) for t in targets])

    def loss(theta):
        a, b = logprobs(theta)
        return math.sin(a) * b * b + b

    a, b = logprobs(theta)
    (datum,) = weighted_data([sft_datum([9], targets)], [[math.cos(a) * b * b, 2 * math.sin(a) * b + 1]])
    softmax = np.exp(theta) / np.sum(np.exp(theta))
    sent = sum(-w * (np.eye(4)[t] - softmax) for w, t in zip(weights_of(datum), targets, strict=True))
    step = 1e-5
    measured = [(loss(theta + step * e) - loss(theta - step * e)) / (2 * step) for e in np.eye(4)]
    assert sent == pytest.approx(measured, abs=1e-6)


def test_what_does_not_pair_is_refused_with_the_numbers():
    datum = sft_datum([1, 2, 3], [4, 5])
    with pytest.raises(ValueError, match="3 values for a datum of 4 positions, 2 of them trained"):
        at_trained(datum, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="data has 1 datums, gradients has 2"):
        weighted_data([datum], [[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="not finite"):
        weighted_data([datum], [[math.nan, 1.0]])


def test_soft_targets_have_no_single_logprob_to_differentiate():
    soft = {"loss_inputs": {"weights": {"shape": [2, 3], "values": [0.0] * 6}}}
    with pytest.raises(ValueError, match=r"shape \[2, 3\]"):
        at_trained(soft, [1.0, 1.0])
