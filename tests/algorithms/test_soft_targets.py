import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import scale_data, trained_tokens
from algorithms.soft_targets import completion_topk, require_soft_targets, soft_target_datum, soft_target_group
from whitney.types import Datum

ROW = st.dictionaries(st.integers(0, 100), st.floats(-30, 0), min_size=1, max_size=6).map(
    lambda row: [[token, logprob] for token, logprob in row.items()]
)


def values(datum, name):
    sent = datum["loss_inputs"][name]
    return np.array(sent["values"]).reshape(sent["shape"])


def test_rows_are_renormalised_behind_a_prompt_of_zeros():
    rows = [[[5, math.log(0.6)], [6, math.log(0.2)]], [[7, math.log(0.5)], [8, math.log(0.5)]]]
    datum = soft_target_datum([1, 2], [5, 7], rows, k=2)
    assert datum["input"]["token_ids"] == [1, 2, 5]
    assert values(datum, "target_tokens").tolist() == [[0, 0], [5, 6], [7, 8]]
    assert values(datum, "weights") == pytest.approx(np.array([[0, 0], [0.75, 0.25], [0.5, 0.5]]))


def test_a_short_row_is_filled_up_with_weight_zero_and_a_long_one_keeps_its_likeliest():
    datum = soft_target_datum([1], [5, 7], [[[5, -1.0]], [[7, -3.0], [8, -1.0], [9, -1.0 - math.log(3)]]], k=2)
    assert values(datum, "target_tokens").tolist() == [[5, 0], [8, 9]]
    assert values(datum, "weights") == pytest.approx(np.array([[1, 0], [0.75, 0.25]]))


@given(st.lists(ROW, min_size=1, max_size=6), st.integers(1, 5), st.integers(0, 7))
def test_every_trained_row_is_a_distribution_and_the_datum_passes_the_wire(rows, k, skip_first):
    datum = soft_target_datum([1, 2, 3], [4] * len(rows), rows, k=k, skip_first=skip_first)
    weights = values(datum, "weights")
    trained = max(len(rows) - skip_first, 0)
    assert weights.shape == (len(rows) + 2, k)
    assert weights.sum(axis=1) == pytest.approx(np.array([0.0] * (len(weights) - trained) + [1.0] * trained))
    assert trained_tokens(datum) == trained
    Datum.model_validate(datum)


def test_the_gradient_is_the_forward_kls():
    """Σ_k w_k·(p − 1_k) over a softmax student, against finite differences of KL(teacher ‖ student)."""
    random = np.random.default_rng(1)
    theta, teacher = random.normal(size=5), random.dirichlet(np.ones(5))
    row = [[token, float(np.log(probability))] for token, probability in enumerate(teacher)]
    datum = soft_target_datum([9], [0], [row], k=5)
    targets, weights = values(datum, "target_tokens")[0], values(datum, "weights")[0]

    def divergence(theta):
        return np.sum(teacher * (np.log(teacher) - theta + np.log(np.sum(np.exp(theta)))))

    p = np.exp(theta) / np.sum(np.exp(theta))
    sent = sum(w * (p - np.eye(5)[t]) for t, w in zip(targets, weights, strict=True))
    step = 1e-6
    measured = [(divergence(theta + step * e) - divergence(theta - step * e)) / (2 * step) for e in np.eye(5)]
    assert sent == pytest.approx(np.array(measured), abs=1e-8)


def test_a_completions_rows_are_the_last_ones_with_or_without_a_leading_null():
    rows = [[[1, -0.1]], [[2, -0.2]], [[3, -0.3]]]
    assert completion_topk([None, *rows], 2) == completion_topk(rows, 2) == rows[1:]
    with pytest.raises(ValueError, match="top-K row 0 of 2 is None"):
        completion_topk([None, rows[0]], 2)
    with pytest.raises(ValueError, match="holds 3 top-K rows for a completion of 4"):
        completion_topk(rows, 4)


def test_a_group_counts_what_it_does_not_send():
    row = [[5, -0.5]]
    sequences = [
        {"tokens": [5, 5, 5], "teacher_topk": [row] * 3},
        {"tokens": [5], "teacher_topk": [row]},
        {"tokens": [5], "teacher_topk": None},
        {"tokens": [], "teacher_topk": []},
    ]
    group = soft_target_group([1], sequences, k=1, skip_first=1)
    assert [trained_tokens(datum) for datum in group.data] == [2]
    assert group.dropped_by_reason == {"zero_signal": 1, "no_teacher": 1, "empty_completion": 1}
    assert group.advantages == [None] * 4
    assert not group.zero_signal
    (scaled,) = scale_data(group.data, "token_mean", field="weights")
    assert values(scaled, "weights").sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (([], [1], [[[1, -0.1]]]), {}, "prompt_tokens and completion_tokens need"),
        (([1], [1, 2], [[[1, -0.1]]]), {}, "topk_rows has 1 rows, completion_tokens has 2"),
        (([1], [1], [[[1, -0.1]]]), {"k": 0}, "k is 0"),
        (([1], [1], [[[1, -0.1]]]), {"skip_first": -1}, "skip_first is -1"),
        (([1], [1], [[[4, math.nan]]]), {}, "token 4 the log-prob nan"),
        (([1], [1], [[[4, -math.inf]]]), {}, "no token with a probability"),
        (([1], [1], [[]]), {}, "no token with a probability"),
    ],
)
def test_what_cannot_be_a_target_is_refused_with_the_reason(arguments, options, said):
    with pytest.raises(ValueError, match=said):
        soft_target_datum(*arguments, **options)


def test_a_provider_without_two_dimensional_targets_is_refused_by_name():
    require_soft_targets("local")
    require_soft_targets("tinker")
    with pytest.raises(ValueError, match=r"modal takes no \(N, K\) targets.*local, tinker"):
        require_soft_targets("modal")
