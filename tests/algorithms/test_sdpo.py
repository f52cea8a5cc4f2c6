import string
from types import SimpleNamespace

import pytest

from algorithms import NoGradientError
from algorithms.sdpo import FEEDBACK_TEMPLATE, build_loss

REQUEST = {"prompt": {"token_ids": [1, 2]}}
LOCAL = SimpleNamespace(provider="local")


def sequence(teacher):
    return {"tokens": [5, 6], "logprobs": [-1.0, -2.0], "teacher_logprobs": teacher}


def test_the_template_shows_the_question_the_attempt_and_the_feedback():
    fields = [name for _, name, _, _ in string.Formatter().parse(FEEDBACK_TEMPLATE) if name is not None]
    assert fields == ["question", "attempt", "feedback"]


def test_a_token_that_the_feedback_speaks_against_is_pushed_down():
    payload = build_loss({"sequences": [sequence([-1.0, -6.0])]}, 0, REQUEST, LOCAL)
    assert payload["loss_function"] == "importance_sampling"
    assert payload["data"][0]["loss_inputs"]["advantages"]["values"] == [0.0, 0.0, -4.0]


def test_an_attempt_without_feedback_is_left_out():
    payload = build_loss({"sequences": [sequence(None), sequence([-0.5, -1.5])]}, 0, REQUEST, LOCAL)
    assert len(payload["data"]) == 1
    with pytest.raises(NoGradientError):
        build_loss({"sequences": [sequence(None)]}, 0, REQUEST, LOCAL)
