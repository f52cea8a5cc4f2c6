"""What a teacher is asked that knows more than the student: the answer, or what was wrong with an attempt.

Self-distillation asks one model twice. The student sees the question; the teacher sees the question and a
demonstration of the answer (OPSD, after arXiv 2601.19897), or the student's attempt and feedback on it (SDPO, after
arXiv 2601.20802). The templates themselves are in `algorithms.opsd` and `algorithms.sdpo`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.examples import DataError, Example, Message
from tasks.prompt_templates import check_template, rephrase

ANSWER = "answer"


def check_demonstration_template(template: str) -> None:
    """Raises ValueError unless the template holds {question} and {answer}, and nothing else."""
    check_template(template, ["question", "answer"])


def check_feedback_template(template: str) -> None:
    """Raises ValueError unless the template holds {question}, {attempt} and {feedback}, and nothing else."""
    check_template(template, ["question", "attempt", "feedback"])


def check_demonstrations(examples: Sequence[Example], field: str = ANSWER) -> None:
    """Make sure that every example has a demonstration.

    Raises:
        DataError: says how many have none, and names one.
    """
    without = [example for example in examples if field_text(example, field) is None]
    if without:
        raise DataError(
            f"{len(without)} of {len(examples)} examples have no text in the field {field!r}, which the teacher is "
            f"shown as the demonstration; {without[0].id} for one"
        )


def field_text(example: Example, field: str) -> str | None:
    """An example's field as text: `answer`, or whatever else its line says; None where it is missing or no text."""
    value = example.answer if field == ANSWER else example.extra.get(field)
    return value if isinstance(value, str) and value.strip() else None


def demonstration_prompt(example: Example, template: str, *, field: str = ANSWER) -> tuple[Message, ...]:
    """The conversation whose last question comes with a demonstration of its answer, from the example's `field`.

    Raises:
        ValueError: a template without {question} or {answer}, or with another placeholder.
        DataError: the example has no text in `field`, or no user message.
    """
    answer = field_text(example, field)
    if answer is None:
        raise DataError(f"example {example.id} has no text in the field {field!r} to demonstrate the answer with")
    return rephrase(example, template, answer=answer)


def feedback_prompt(example: Example, attempt_text: str, feedback: str, template: str) -> tuple[Message, ...]:
    """The conversation whose last question comes with an attempt at it and with feedback on that attempt.

    Raises:
        ValueError: a template without {question}, {attempt} or {feedback}, or with another placeholder.
        DataError: the example has no user message.
    """
    return rephrase(example, template, attempt=attempt_text, feedback=feedback)
