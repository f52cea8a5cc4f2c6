from types import SimpleNamespace

import pytest

from algorithms import NoGradientError
from algorithms.ttt import advantages, build_loss

REQUEST = {"prompt": {"token_ids": [1, 2]}}
LOCAL = SimpleNamespace(provider="local")


def sample(*rewards):
    return {"sequences": [{"tokens": [5, 6], "logprobs": [-1.0, -2.0], "reward": one} for one in rewards]}


def test_lengths_play_no_part_and_beta_is_an_option():
    assert advantages([1, 0, 0, 0], [9, 1, 5, 2], beta=2.0) == pytest.approx([6.3891, *[-0.6805] * 3], abs=5e-5)


@pytest.mark.parametrize("provider", ["modal", "tinker", "local"])
def test_a_group_is_sent_with_the_adaptive_entropic_advantages(provider):
    payload = build_loss(sample(1, 0, None, 0, 0), 0, REQUEST, SimpleNamespace(provider=provider))
    assert (payload["loss_function"], payload["loss_config"]) == ("importance_sampling", {})
    sent = [datum["loss_inputs"]["advantages"]["values"][1] for datum in payload["data"]]
    assert sent == pytest.approx([11.8487, *[-0.7980] * 3], abs=5e-5)


def test_equal_rewards_have_nothing_to_teach():
    with pytest.raises(NoGradientError):
        build_loss(sample(0.1, 0.1, 0.1), 0, REQUEST, LOCAL)


def test_one_completion_is_no_group():
    with pytest.raises(ValueError, match=r"1 reward\(s\)"):
        build_loss(sample(1.0), 0, REQUEST, LOCAL)
