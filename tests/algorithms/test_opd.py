from types import SimpleNamespace

import pytest

from algorithms import NoGradientError
from algorithms.opd import build_loss

REQUEST = {"prompt": {"token_ids": [1, 2]}}


def sample(*teachers):
    return {"sequences": [{"tokens": [5, 6], "logprobs": [-1.0, -2.0], "teacher_logprobs": one} for one in teachers]}


@pytest.mark.parametrize("provider", ["modal", "tinker", "local"])
def test_a_completion_is_weighted_token_by_token_by_how_much_the_teacher_preferred_it(provider):
    payload = build_loss(sample([-0.5, -2.5]), 0, REQUEST, SimpleNamespace(provider=provider))
    assert (payload["loss_function"], payload["loss_config"]) == ("importance_sampling", {})
    (datum,) = payload["data"]
    assert datum["loss_inputs"]["advantages"]["values"] == [0.0, 0.5, -0.5]


def test_a_teacher_that_agrees_or_is_silent_has_nothing_to_teach():
    with pytest.raises(NoGradientError):
        build_loss(sample([-1.0, -2.0], None), 0, REQUEST, SimpleNamespace(provider="local"))


def test_an_unknown_provider_is_refused_before_anything_is_built():
    with pytest.raises(ValueError, match="Unknown provider"):
        build_loss({}, 0, REQUEST, SimpleNamespace(provider="nobody"))
