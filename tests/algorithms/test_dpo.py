import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.dpo import Row, dpo_loss, dpo_step, pair_data, pair_up

LOGP = st.floats(-50, 0)
PROMPT = (1, 2, 3)


def rows(*names):
    """Rows "c1", "r1", …, each answer with tokens of its own."""
    sides = {"c": "chosen", "r": "rejected"}
    return [Row(name[1:], sides[name[0]], PROMPT, (10 * int(name[1:]) + (name[0] == "r"), 99)) for name in names]


def ids(paired):
    return [pair.id for pair in paired.pairs]


def answers(pair):
    return [datum["loss_inputs"]["target_tokens"]["values"][2:] for datum in (pair.chosen, pair.rejected)]


def test_a_bad_row_drops_its_own_pair_and_shifts_no_other():
    c1, r1, c2, r2, c3, r3 = rows("c1", "r1", "c2", "r2", "c3", "r3")
    paired = pair_up([c1, r1, c2, replace(r2, problem="not_text"), c3, r3])
    assert ids(paired) == ["1", "3"]
    assert [answers(pair) for pair in paired.pairs] == [[[10, 99], [11, 99]], [[30, 99], [31, 99]]]
    assert paired.dropped_by_reason == {"not_text": 1}


def test_a_row_that_never_came_drops_its_pair_by_id_and_not_by_parity():
    paired = pair_up(rows("c1", "r1", "c2", "c3", "r3"))
    assert ids(paired) == ["1", "3"]
    assert paired.dropped_by_reason == {"unpaired": 1}


@given(st.permutations(["c1", "r1", "c2", "r2", "c3", "r3"]))
def test_the_order_of_rows_decides_nothing_but_the_order_of_pairs(names):
    paired = pair_up(rows(*names))
    assert {pair.id: answers(pair) for pair in paired.pairs} == {
        str(i): [[10 * i, 99], [10 * i + 1, 99]] for i in (1, 2, 3)
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"completion_tokens": ()}, "empty_completion"),
        ({"completion_tokens": (5,) * 8}, "too_long"),
        ({"prompt_tokens": (1, 2)}, "prompts_differ"),
        ({"completion_tokens": (10, 99)}, "identical"),
    ],
)
def test_each_kind_of_bad_pair_is_counted_under_its_name(change, reason):
    chosen, rejected = rows("c1", "r1")
    paired = pair_up([chosen, replace(rejected, **change), *rows("c2", "r2")], max_sequence_tokens=10)
    assert ids(paired) == ["2"]
    assert paired.dropped_by_reason == {reason: 1}


def test_two_rows_of_one_side_and_an_unknown_side_are_refused_by_name():
    with pytest.raises(ValueError, match="id '1' has two chosen rows"):
        pair_up(rows("c1", "c1"))
    with pytest.raises(ValueError, match="side of row '7' is 'best'"):
        pair_up([Row("7", "best", PROMPT, (1,))])


def test_the_worked_pair_has_its_loss_and_margin():
    loss = dpo_loss(-10.0, -12.0, -15.0, -14.0, beta=0.1)
    assert loss.loss == pytest.approx(0.55436, abs=5e-6)
    assert loss.margin == pytest.approx(0.3)
    assert loss.gradient == pytest.approx(-0.1 / (1 + math.exp(0.3)))


def test_a_policy_that_is_its_reference_starts_at_ln_2():
    assert dpo_loss(-3.0, -3.0, -9.0, -9.0, beta=0.5) == pytest.approx((math.log(2), 0.0, -0.25))


@given(st.tuples(LOGP, LOGP, LOGP, LOGP), st.floats(0.01, 2), st.floats(0, 0.49))
def test_the_gradient_is_what_finite_differences_measure(logps, beta, smoothing):
    chosen, ref_chosen, rejected, ref_rejected = logps

    def loss(chosen, rejected):
        return dpo_loss(chosen, ref_chosen, rejected, ref_rejected, beta=beta, label_smoothing=smoothing)

    step = 1e-4
    by_chosen = (loss(chosen + step, rejected).loss - loss(chosen - step, rejected).loss) / (2 * step)
    by_rejected = (loss(chosen, rejected + step).loss - loss(chosen, rejected - step).loss) / (2 * step)
    gradient = loss(chosen, rejected).gradient
    assert by_chosen == pytest.approx(gradient, abs=1e-6)
    assert by_rejected == pytest.approx(-gradient, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("h", [1e4, -1e4, 800.0, -800.0])
def test_it_stays_finite_and_right_far_out(h, smoothing):
    loss = dpo_loss(h, 0.0, 0.0, 0.0, beta=1.0, label_smoothing=smoothing)
    assert loss.loss == pytest.approx(max(-h, 0) * (1 - smoothing) + max(h, 0) * smoothing)
    assert loss.gradient == pytest.approx(-(1 - smoothing) if h < 0 else smoothing)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beta": 0.0}, "beta is 0"),
        ({"beta": math.inf}, "beta is inf"),
        ({"beta": 0.1, "label_smoothing": 0.5}, "label_smoothing is 0.5"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        dpo_loss(0.0, 0.0, 0.0, 0.0, **options)


def test_a_step_sends_the_mean_over_pairs_and_reports_it():
    pairs = pair_up(rows("c1", "r1", "c2", "r2")).pairs
    policy = [[-4.0, -6.0], [-7.0, -8.0], [-1.0, -1.0], [-1.0, -0.5]]
    reference = [[-5.0, -7.0], [-7.0, -7.0], [-1.0, -1.0], [-1.0, -1.0]]
    step = dpo_step(pairs, policy, reference, beta=0.1)
    first, second = dpo_loss(-10, -12, -15, -14, beta=0.1), dpo_loss(-2, -2, -1.5, -2, beta=0.1)
    assert step.metrics == pytest.approx(
        {
            "loss": (first.loss + second.loss) / 2,
            "margin": (0.3 - 0.05) / 2,
            "accuracy": 0.5,
            "chosen_logps": -6.0,
            "rejected_logps": -8.25,
        }
    )
    expected = [-first.gradient / 2, first.gradient / 2, -second.gradient / 2, second.gradient / 2]
    for datum, weight in zip(step.data, expected, strict=True):
        assert datum["loss_inputs"]["weights"]["values"] == [0.0, 0.0, weight, weight]


def test_logprobs_may_come_for_every_position_as_forward_reports_them():
    pairs = pair_up(rows("c1", "r1")).pairs
    trained = [[-4.0, -6.0], [-7.0, -8.0]]
    everywhere = [[-9.0, -9.0, *one] for one in trained]
    assert dpo_step(pairs, everywhere, trained, beta=0.1) == dpo_step(pairs, trained, everywhere, beta=0.1)


def test_the_datums_of_a_step_descend_its_loss():
    """Σ −w·dlp over everything sent equals the change of the mean loss, for any small change of the log-probs."""
    random = np.random.default_rng(0)
    pairs = pair_up(rows("c1", "r1", "c2", "r2", "c3", "r3")).pairs
    policy, reference = (random.uniform(-5, 0, (6, 2)) for _ in range(2))
    change = random.normal(size=(6, 2))
    step = dpo_step(pairs, policy.tolist(), reference.tolist(), beta=0.3)
    weights = np.array([datum["loss_inputs"]["weights"]["values"][2:] for datum in step.data])
    ahead, behind = (
        dpo_step(pairs, (policy + sign * 1e-5 * change).tolist(), reference.tolist(), beta=0.3).metrics["loss"]
        for sign in (1, -1)
    )
    assert np.sum(-weights * change) == pytest.approx((ahead - behind) / 2e-5, abs=1e-8)


def test_a_step_without_pairs_or_with_too_few_lists_is_refused():
    pairs = pair_up(rows("c1", "r1")).pairs
    assert len(pair_data(pairs)) == 2
    with pytest.raises(ValueError, match="reference_logprobs has 1 lists for 1 pairs"):
        dpo_step(pairs, [[-1.0, -1.0]] * 2, [[-1.0, -1.0]], beta=0.1)
    with pytest.raises(ValueError, match="0 pairs"):
        dpo_step([], [], [], beta=0.1)
