import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.gae import gae, terminal_rewards

STEPS = st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12)
UNIT = st.floats(0, 1)


def test_three_tokens_by_hand():
    advantages, returns = gae([0.0, 0.0, 1.0], [0.5, 0.25, 0.75], gamma=0.5, lam=0.5)
    # δ = [.5·.25 − .5, .5·.75 − .25, 1 − .75] = [−.375, .125, .25]; γλ = .25
    assert advantages == [-0.375 + 0.25 * 0.1875, 0.125 + 0.25 * 0.25, 0.25]
    assert returns == [advantages[0] + 0.5, advantages[1] + 0.25, 1.0]


@given(STEPS, UNIT, UNIT, st.floats(-5, 5))
def test_it_equals_the_papers_double_sum(steps, gamma, lam, bootstrap):
    rewards, values = np.array(steps).T
    deltas = rewards + gamma * np.append(values[1:], bootstrap) - values
    expected = [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]
    advantages, returns = gae(list(rewards), list(values), gamma=gamma, lam=lam, bootstrap=bootstrap)
    assert advantages == pytest.approx(expected, abs=1e-9)
    assert returns == pytest.approx(np.array(expected) + values, abs=1e-9)


@given(STEPS, UNIT, st.floats(-5, 5))
def test_lambda_one_is_the_discounted_return_whatever_the_critic_says(steps, gamma, bootstrap):
    rewards, values = zip(*steps, strict=True)
    _, returns = gae(rewards, values, gamma=gamma, lam=1.0, bootstrap=bootstrap)
    tail = bootstrap
    expected = [tail := reward + gamma * tail for reward in reversed(rewards)][::-1]
    assert returns == pytest.approx(expected, abs=1e-9)


def test_lambda_zero_is_the_critics_one_step_error():
    assert gae([1.0, 2.0], [3.0, 4.0], gamma=0.5, lam=0.0, bootstrap=8.0)[0] == [1 + 0.5 * 4 - 3, 2 + 0.5 * 8 - 4]


def test_a_critic_that_is_right_leaves_no_advantage():
    assert gae(terminal_rewards(1.0, 4), [1.0] * 4)[0] == [0.0] * 4


def test_a_completions_reward_sits_on_its_last_token():
    assert terminal_rewards(2, 3) == [0.0, 0.0, 2.0]
    with pytest.raises(ValueError, match="length is 0"):
        terminal_rewards(1.0, 0)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (([1.0], [1.0, 2.0]), {}, "rewards has 1, values has 2"),
        (([], []), {}, "rewards is empty"),
        (([1.0], [1.0]), {"gamma": 1.5}, "gamma is 1.5"),
        (([1.0], [1.0]), {"lam": -0.1}, "lam is -0.1"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, options, said):
    with pytest.raises(ValueError, match=said):
        gae(*arguments, **options)
