import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.actor_critic import normalize_advantages
from algorithms.distillation import completion_logprobs, distillation_group, reverse_kl

LOGPROB = st.floats(-20, 0)
PAIRS = st.lists(st.tuples(LOGPROB, LOGPROB), min_size=1, max_size=10)


def sequence(student, teacher):
    return {
        "tokens": list(range(len(student))),
        "logprobs": student,
        "teacher_logprobs": teacher,
        "stop_reason": "stop",
    }


def advantages(student, teacher, **options):
    (datum,) = distillation_group([7], [sequence(student, teacher)], **options).data
    return datum["loss_inputs"]["advantages"]["values"]


@pytest.mark.parametrize("answer", [[None, -0.1, -0.2, -0.5], [-0.1, -0.2, -0.5]])
def test_two_and_two_tokens_end_in_the_completions_logprobs_with_or_without_a_leading_null(answer):
    assert completion_logprobs(answer, 2) == [-0.2, -0.5]


@given(st.lists(st.none() | LOGPROB, max_size=8), st.lists(LOGPROB, min_size=1, max_size=8))
def test_whatever_stands_before_the_completion_does_not_matter(before, completion):
    assert completion_logprobs([*before, *completion], len(completion)) == completion


@pytest.mark.parametrize(
    ("answer", "length", "said"),
    [
        ([-0.1], 2, "holds 1 log-probs for a completion of 2 tokens"),
        ([None, -0.1], 2, "log-prob 0 of 2 is None"),
        ([-0.1, math.nan], 1, "log-prob 1 of 2 is nan"),
        ([-0.1], 0, "completion_length is 0"),
    ],
)
def test_an_answer_that_does_not_cover_the_completion_is_refused(answer, length, said):
    with pytest.raises(ValueError, match=said):
        completion_logprobs(answer, length)


def test_a_student_at_minus_one_and_a_teacher_at_minus_a_half_give_plus_a_half():
    assert advantages([-1.0], [-0.5]) == [0.5]
    assert reverse_kl([sequence([-1.0], [-0.5])]) == -0.5


def test_every_token_has_its_own_advantage_behind_a_prompt_of_zeros():
    group = distillation_group([7, 8, 9], [sequence([-1.0, -2.0], [-0.5, -3.0])])
    inputs = group.data[0]["loss_inputs"]
    assert inputs["advantages"]["values"] == [0.0, 0.0, 0.5, -1.0]
    assert inputs["logprobs"]["values"] == [0.0, 0.0, -1.0, -2.0]
    assert group.advantages == [-0.25]


def test_the_options_scale_discount_clip_and_skip_in_this_order():
    student, teacher = [-1.0, -1.0, -1.0], [-0.5, -2.0, -0.75]  # d = .5, −1, .25
    assert advantages(student, teacher, kl_coef=2.0) == [1.0, -2.0, 0.5]
    assert advantages(student, teacher, discount=0.5) == [0.5 - 0.5 + 0.0625, -1.0 + 0.125, 0.25]
    assert advantages(student, teacher, advantage_clip=0.4) == [0.4, -0.4, 0.25]
    assert advantages(student, teacher, skip_first=2) == [0.0, 0.0, 0.25]
    assert advantages(student, teacher, kl_coef=2.0, discount=0.5, advantage_clip=1.0, skip_first=1) == [0.0, -1.0, 0.5]


@given(PAIRS, st.floats(0, 1))
def test_a_discounted_advantage_is_the_discounted_sum_of_what_follows(pairs, discount):
    student, teacher = ([*column] for column in zip(*pairs, (-1.0, -2.0), strict=True))
    gaps = np.subtract(teacher, student)
    expected = [sum(discount ** (k - t) * gaps[k] for k in range(t, len(gaps))) for t in range(len(gaps))]
    assert advantages(student, teacher, discount=discount) == pytest.approx(expected, abs=1e-9)


def test_what_teaches_nothing_is_dropped_and_counted_by_reason():
    sequences = [
        sequence([-1.0], [-0.5]),
        sequence([], []),
        sequence([-1.0], None),
        sequence([-1.0, -2.0], [-1.0, -2.0]),
    ]
    group = distillation_group([7], sequences)
    assert len(group.data) == 1
    assert group.advantages == [0.5, None, None, 0.0]
    assert group.dropped_by_reason == {"empty_completion": 1, "no_teacher": 1, "zero_signal": 1}
    assert not group.zero_signal
    assert distillation_group([7], sequences[1:]).zero_signal


def test_a_completion_shorter_than_what_is_skipped_sends_nothing():
    group = distillation_group([7], [sequence([-1.0, -1.0], [-0.5, -0.5])], skip_first=3)
    assert group.data == []
    assert group.dropped_by_reason == {"zero_signal": 1}


def test_skipped_tokens_have_weight_0_so_that_neither_means_nor_centring_count_them():
    (datum,) = distillation_group([7, 8], [sequence([-1.0] * 4, [-0.5, -0.5, -3.0, -0.1])], skip_first=2).data
    assert datum["loss_inputs"]["weights"]["values"] == [0.0, 0.0, 0.0, 1.0, 1.0]
    (centred,) = normalize_advantages([datum], scale=False)
    assert centred["loss_inputs"]["advantages"]["values"] == [0.0, 0.0, 0.0, pytest.approx(-1.45), pytest.approx(1.45)]


def test_the_reverse_kl_is_a_mean_over_tokens_not_over_completions():
    sequences = [sequence([-1.0, -1.0, -1.0], [-2.0, -2.0, -2.0]), sequence([-1.0], [-4.0]), sequence([-1.0], None)]
    assert reverse_kl(sequences) == 1.5
    assert math.isnan(reverse_kl([sequence([], [])]))


def test_the_reverse_kl_of_the_students_own_samples_is_the_divergence_itself():
    student, teacher = [0.7, 0.2, 0.1], [0.2, 0.5, 0.3]
    drawn = [token for token, p in enumerate(student) for _ in range(round(10 * p))]
    sampled = [sequence([math.log(student[t])], [math.log(teacher[t])]) for t in drawn]
    assert reverse_kl(sampled) == pytest.approx(sum(p * math.log(p / q) for p, q in zip(student, teacher, strict=True)))


def test_the_expected_update_descends_the_reverse_kl():
    """Σ_x p(x)·A(x)·∇log p(x) = −∇KL(p ‖ teacher), against finite differences over a softmax of four logits."""
    random = np.random.default_rng(3)
    theta, teacher = random.normal(size=4), np.log(random.dirichlet(np.ones(4)))

    def log_p(theta):
        return theta - np.log(np.sum(np.exp(theta)))

    def divergence(theta):
        return np.sum(np.exp(log_p(theta)) * (log_p(theta) - teacher))

    p = np.exp(log_p(theta))
    pull = sum(
        p[x] * advantages([float(log_p(theta)[x])], [float(teacher[x])])[0] * (np.eye(4)[x] - p) for x in range(4)
    )
    step = 1e-6
    measured = [(divergence(theta + step * e) - divergence(theta - step * e)) / (2 * step) for e in np.eye(4)]
    assert -pull == pytest.approx(np.array(measured), abs=1e-8)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"discount": 1.5}, "discount is 1.5"), ({"advantage_clip": 0.0}, "advantage_clip"), ({"skip_first": -1}, "-1")],
)
def test_options_that_mean_nothing_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        distillation_group([7], [sequence([-1.0], [-0.5])], **options)


def test_lists_that_do_not_pair_are_refused_with_their_lengths():
    with pytest.raises(ValueError, match="tokens has 2, logprobs has 2, teacher_logprobs has 1"):
        distillation_group([7], [sequence([-1.0, -1.0], [-0.5])])


def test_a_teacher_that_was_not_asked_counts_like_one_without_an_answer():
    group = distillation_group([7], [{"tokens": [1], "logprobs": [-1.0]}])
    assert (group.data, group.dropped_by_reason) == ([], {"no_teacher": 1})
