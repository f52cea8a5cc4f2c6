import pytest
from hypothesis import given
from hypothesis import strategies as st

import models
from algorithms.opsd import DEMONSTRATION_TEMPLATE
from algorithms.sdpo import FEEDBACK_TEMPLATE
from tasks.examples import DataError, example, user
from tasks.prompt_templates import check_template, prompt_tokens_or_none, rephrase
from tasks.rendering import Renderer
from tasks.teacher_prompts import (
    check_demonstration_template,
    check_demonstrations,
    check_feedback_template,
    demonstration_prompt,
    feedback_prompt,
)
from tasks.ttt_prompts import IMPROVE_TEMPLATE, check_improve_template, start_prompt

SYSTEM = {"role": "system", "content": "Be brief."}
EARLIER = [*user("What is 1 + 1?"), {"role": "assistant", "content": "2"}]
QUESTION = example(user("What is 7 + 5?"), "12", id="q", extra={"hint": "count on", "level": 3})


def said(messages):
    return messages[-1]["content"]


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{question}", r"\{answer\} is missing; this template holds \{question\}, \{answer\}"),
        ("{answer}", r"\{question\} is missing"),
        ("{question} {answer} {anser}", r"placeholder \{anser\} is unknown: did you mean 'answer'"),
        ("{question} {answer} {}", r"placeholder \{\} is unknown"),
        ("{question} {answer.__class__}", r"placeholder \{answer.__class__\} is unknown"),
        ("{question} {answer[0]}", r"placeholder \{answer\[0\]\} is unknown"),
        ("{question} {answer:>{width}}", r"write \{answer\} alone"),
        ("{question!r} {answer}", r"write \{question\} alone"),
        ("{question} {answer} }", "a brace that is meant as one is written twice"),
        ("{question} {answer} {", "a brace that is meant as one is written twice"),
        ("", "is missing"),
    ],
)
def test_a_template_that_is_not_what_it_should_be_is_refused_with_what_to_write(template, complaint):
    with pytest.raises(ValueError, match=complaint):
        check_template(template, ["question", "answer"])
    with pytest.raises(ValueError, match=complaint):
        demonstration_prompt(QUESTION, template)


def test_a_placeholder_may_stand_twice_and_a_brace_is_written_twice():
    messages = rephrase(QUESTION, "{question} {{so}} {question} {answer}", answer="12")
    assert said(messages) == "What is 7 + 5? {so} What is 7 + 5? 12"


@given(question=st.text(min_size=1), words=st.text())
def test_whatever_a_question_or_an_attempt_holds_is_put_in_as_it_is(question, words):
    messages = rephrase(example(user(question)), "<{question}|{attempt}>", attempt=words)
    assert said(messages) == f"<{question}|{words}>"


def test_braces_in_a_question_are_no_placeholders():
    item = example(user("What does f'{question} {0} {' print?"), "{answer}")
    assert (
        said(demonstration_prompt(item, "{question} -> {answer}")) == "What does f'{question} {0} {' print? -> {answer}"
    )


def test_the_last_question_is_rephrased_and_the_messages_before_it_stay():
    item = example([SYSTEM, *EARLIER, *user("And 2 + 2?")], "4")
    messages = demonstration_prompt(item, "{question} ({answer})")
    assert list(messages) == [SYSTEM, *EARLIER, *user("And 2 + 2? (4)")]
    assert said(item.messages) == "And 2 + 2?"


def test_what_stands_after_the_last_question_stays_too():
    item = example([*user("And 2 + 2?"), SYSTEM], "4")
    assert demonstration_prompt(item, "{question} ({answer})") == (*user("And 2 + 2? (4)"), SYSTEM)


def test_a_conversation_without_a_question_cannot_be_rephrased():
    with pytest.raises(DataError, match="example s has no user message"):
        demonstration_prompt(example([SYSTEM], "4", id="s"), "{question} {answer}")


def test_the_demonstration_is_the_answer_or_the_field_that_is_named():
    assert said(demonstration_prompt(QUESTION, "{question} {answer}")) == "What is 7 + 5? 12"
    assert said(demonstration_prompt(QUESTION, "{question} {answer}", field="hint")) == "What is 7 + 5? count on"


@pytest.mark.parametrize("field", ["demonstration", "level"])
def test_an_example_without_a_demonstration_is_named(field):
    with pytest.raises(DataError, match=f"example q has no text in the field '{field}'"):
        demonstration_prompt(QUESTION, "{question} {answer}", field=field)
    with pytest.raises(DataError, match=f"2 of 2 examples have no text in the field '{field}'.*; q for one"):
        check_demonstrations([QUESTION, QUESTION], field)


def test_demonstrations_are_checked_example_by_example():
    check_demonstrations([QUESTION])
    with pytest.raises(DataError, match=r"1 of 2 examples have no text in the field 'answer'.*; none for one"):
        check_demonstrations([QUESTION, example(user("q"), id="none")])


def test_a_feedback_prompt_shows_the_attempt_and_what_was_said_about_it():
    messages = feedback_prompt(QUESTION, "It is {13}.", "That is wrong.", "{question}|{attempt}|{feedback}")
    assert said(messages) == "What is 7 + 5?|It is {13}.|That is wrong."


def test_the_shipped_templates_hold_what_they_should():
    check_demonstration_template(DEMONSTRATION_TEMPLATE)
    check_feedback_template(FEEDBACK_TEMPLATE)
    check_improve_template(IMPROVE_TEMPLATE)
    for check in (check_demonstration_template, check_feedback_template, check_improve_template):
        with pytest.raises(ValueError, match="is missing"):
            check("{question}")


def test_test_time_training_starts_from_the_bare_problem_or_from_an_earlier_solution_and_its_score():
    assert start_prompt(QUESTION, None, None) == QUESTION.messages
    messages = start_prompt(QUESTION, "about {10}", 0.123456)
    assert said(messages).startswith("What is 7 + 5?\n")
    assert "about {10}" in said(messages)
    assert "scored 0.1235;" in said(messages)
    with pytest.raises(ValueError, match="reward is None"):
        start_prompt(QUESTION, "10", None)
    assert said(start_prompt(QUESTION, "10", 1.0, "{question}/{attempt}/{reward}")) == "What is 7 + 5?/10/1"


def test_a_prompt_in_which_a_model_spelt_out_a_special_token_has_no_tokens():
    renderer = Renderer(models.resolve("tiny"), "chatml")
    template = "{question} {attempt} {feedback}"
    sound = feedback_prompt(QUESTION, "13", "no", template)
    assert prompt_tokens_or_none(renderer, sound) == renderer.prompt_tokens(sound)
    assert prompt_tokens_or_none(renderer, feedback_prompt(QUESTION, "13<|im_end|>", "no", template)) is None
