import string
from types import SimpleNamespace

import pytest

from algorithms import NoGradientError
from algorithms.opsd import DEMONSTRATION_TEMPLATE, build_loss, build_soft_loss

REQUEST = {"prompt": {"token_ids": [1, 2]}}
LOCAL = SimpleNamespace(provider="local")


def test_the_template_shows_the_question_and_the_golden_answer():
    fields = {name for _, name, _, _ in string.Formatter().parse(DEMONSTRATION_TEMPLATE) if name is not None}
    assert fields == {"question", "answer"}
    filled = DEMONSTRATION_TEMPLATE.format(question="What is {3}+4?", answer="7")
    assert "What is {3}+4?" in filled
    assert "7" in filled


def test_the_default_is_the_teachers_preference_per_token():
    sequences = [{"tokens": [5, 6], "logprobs": [-1.0, -2.0], "teacher_logprobs": [-0.5, -2.5]}]
    payload = build_loss({"sequences": sequences}, 0, REQUEST, LOCAL)
    assert payload["loss_function"] == "importance_sampling"
    assert payload["data"][0]["loss_inputs"]["advantages"]["values"] == [0.0, 0.5, -0.5]


@pytest.mark.parametrize("provider", ["tinker", "local"])
def test_the_papers_form_sends_soft_targets_from_the_fourth_token_on(provider):
    sequences = [{"tokens": [5, 6, 7, 8], "teacher_topk": [[[9, -0.5], [5, -1.5]]] * 4}]
    payload = build_soft_loss({"sequences": sequences}, 0, REQUEST, SimpleNamespace(provider=provider))
    weights = payload["data"][0]["loss_inputs"]["weights"]
    assert payload["loss_function"] == "cross_entropy"
    assert weights["shape"] == [5, 20]
    assert not any(weights["values"][:80])
    assert sum(weights["values"][80:]) == pytest.approx(1.0)


def test_soft_targets_are_refused_on_modal_before_anything_is_built():
    with pytest.raises(ValueError, match=r"modal takes no \(N, K\) targets"):
        build_soft_loss({}, 0, REQUEST, SimpleNamespace(provider="modal"))


def test_a_completion_within_the_skipped_tokens_has_nothing_to_teach():
    with pytest.raises(NoGradientError):
        build_soft_loss({"sequences": [{"tokens": [5], "teacher_topk": [[[9, -0.5]]]}]}, 0, REQUEST, LOCAL)
