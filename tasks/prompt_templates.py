"""Prompts made of an example and a template: the conversation stays, its last question is put in other words.

A template is text with named placeholders, as `str.format` reads them: {question}; {{ and }} for braces. What is put in
is never read as a template itself, so a question may hold any braces it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter

from algorithms.names import did_you_mean
from tasks.examples import DataError, Example, Message
from tasks.rendering import Renderer

QUESTION = "question"


def check_template(template: str, placeholders: Sequence[str]) -> None:
    """Make sure that a template holds exactly `placeholders`, each at least once and as it is.

    Raises:
        ValueError: one is missing, unknown, or has an index or a format; or a brace stands alone.
    """
    expected = ", ".join(f"{{{name}}}" for name in placeholders)
    try:
        fields = [part[1:] for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ValueError(f"template {template!r}: {error}; a brace that is meant as one is written twice") from None
    for name, form, conversion in fields:
        if name not in placeholders:
            raise ValueError(
                f"template {template!r}: placeholder {{{name}}} is unknown: {did_you_mean(name or '', placeholders)}"
                f"this template holds {expected}; a brace that is meant as one is written twice"
            )
        if form or conversion:
            raise ValueError(f"template {template!r}: write {{{name}}} alone, without a format after it")
    missing = [name for name in placeholders if name not in {name for name, *_ in fields}]
    if missing:
        raise ValueError(f"template {template!r}: {{{missing[0]}}} is missing; this template holds {expected}")


def rephrase(example: Example, template: str, **words: str) -> tuple[Message, ...]:
    """The example's conversation with its last user message put into `template` as {question}, and `words` beside it.

    Raises:
        ValueError: the template's placeholders are not {question} and the names of `words`.
        DataError: the conversation has no user message.
    """
    check_template(template, [QUESTION, *words])
    places = [place for place, message in enumerate(example.messages) if message["role"] == "user"]
    if not places:
        raise DataError(f"example {example.id} has no user message, which a template needs as its {{question}}")
    question = example.messages[places[-1]]
    asked = {**question, "content": template.format(**{QUESTION: question["content"]}, **words)}
    return (*example.messages[: places[-1]], asked, *example.messages[places[-1] + 1 :])


def prompt_tokens_or_none(renderer: Renderer, messages: Sequence[Message]) -> list[int] | None:
    """The prompt as token ids; None where a message spells out a special token.

    Data is checked before a run starts; what a model wrote cannot be, and it may write "<|im_end|>" letter by letter.

    Raises:
        RenderingError: the chat template fails.
    """
    if any(renderer.special_token_in(message["content"]) for message in messages):
        return None
    return renderer.prompt_tokens(messages)
