"""JSONL files of examples: one object a line, every complaint with its file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.examples import DataError, Example, Message, example, user

ROLES = ("system", "user", "assistant")


def read_jsonl(path: Path) -> list[Example]:
    """Read examples: each line has `prompt` (text) or `messages`, and may have `answer`, `id`, `key` and anything else.

    Whatever else a line says is kept in `extra`. Empty lines are passed over.

    Raises:
        DataError: the file cannot be read, holds no example, or a line is malformed ("file:line: what is wrong").
    """
    try:
        # Not splitlines(): it would cut a JSON string at U+2028, which is no line end to JSON.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    examples = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                examples.append(_example(json.loads(line)))
            except ValueError as error:
                raise DataError(f"{path}:{number}: {error}") from None
    if not examples:
        raise DataError(f"{path} holds no example: write one JSON object a line, with `prompt` or `messages`")
    return examples


def _example(row: Any) -> Example:
    if not isinstance(row, dict):
        raise DataError(f"a line must be a JSON object, this is a {type(row).__name__}")
    prompt, messages, answer = (row.pop(name, None) for name in ("prompt", "messages", "answer"))
    if (prompt is None) == (messages is None):
        raise DataError("exactly one of `prompt` (text) and `messages` (a list) is needed")
    conversation = user(_text("prompt", prompt)) if messages is None else _conversation(messages)
    if conversation[-1]["role"] == "assistant":
        if answer is not None:
            raise DataError("`messages` end with the assistant's reply and `answer` gives another: keep one of the two")
        *given, reply = conversation
        conversation, answer = tuple(given), reply["content"]
    if not conversation:
        raise DataError("`messages` hold nothing but a reply: there is no prompt to answer")
    names = {name: str(row.pop(name)) for name in ("id", "key") if row.get(name) is not None}
    return example(conversation, _answer(answer), extra=row, **names)


def _conversation(messages: Any) -> tuple[Message, ...]:
    if not isinstance(messages, list) or not messages:
        raise DataError('`messages` must be a non-empty list of {"role", "content"}')
    conversation = []
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise DataError(f"messages[{place}] needs a role, one of {', '.join(ROLES)}")
        conversation.append(
            {"role": message["role"], "content": _text(f"messages[{place}].content", message.get("content"))}
        )
    return tuple(conversation)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{name} must be text that is not empty")
    return value


def _answer(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    raise DataError(f"answer must be text or a number, this is a {type(value).__name__}")
