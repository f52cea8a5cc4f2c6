"""JSONL files of examples: one object a line, every complaint with its file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tasks.examples import DataError, Example, Message, example, user

Parsed = TypeVar("Parsed")

ROLES = ("system", "user", "assistant")


def read_jsonl(path: Path) -> list[Example]:
    """Read examples: each line has `prompt` (text) or `messages`, and may have `answer`, `id`, `key` and anything else.

    Whatever else a line says is kept in `extra`. Empty lines are passed over.

    Raises:
        DataError: the file cannot be read, holds no example, or a line is malformed ("file:line: what is wrong").
    """
    return [item for _, item in parse_lines(path, example_of_row)]


def parse_lines(path: Path, parse: Callable[[dict[str, Any]], Parsed]) -> list[tuple[int, Parsed]]:
    """What `parse` makes of every line's object, beside the line's number, counted from 1.

    Raises:
        DataError: the file cannot be read, holds no object, or `parse` refuses one ("file:line: what is wrong").
    """
    try:
        # Not splitlines(): it would cut a JSON string at U+2028, which is no line end to JSON.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    parsed = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                parsed.append((number, parse(_object(_json(line)))))
            except ValueError as error:
                raise DataError(f"{path}:{number}: {error}") from None
    if not parsed:
        raise DataError(f"{path} holds no example: write one JSON object a line, with `prompt` or `messages`")
    return parsed


def example_of_row(row: dict[str, Any]) -> Example:
    """The example that a line's object describes; takes the fields it knows out of `row`.

    Raises:
        DataError: a field that is missing, superfluous or of another type.
    """
    prompt, messages, answer = (row.pop(name, None) for name in ("prompt", "messages", "answer"))
    if (prompt is None) == (messages is None):
        raise DataError("exactly one of `prompt` (text) and `messages` (a list) is needed")
    given = user(text_field("prompt", prompt)) if messages is None else conversation("messages", messages)
    if given[-1]["role"] == "assistant":
        if answer is not None:
            raise DataError("`messages` end with the assistant's reply and `answer` gives another: keep one of the two")
        *before, reply = given
        given, answer = tuple(before), reply["content"]
    if not given:
        raise DataError("`messages` hold nothing but a reply: there is no prompt to answer")
    names = {name: str(row.pop(name)) for name in ("id", "key") if row.get(name) is not None}
    return example(given, _answer(answer), extra=row, **names)


def conversation(name: str, messages: Any) -> tuple[Message, ...]:
    """The field `name` as a conversation.

    Raises:
        DataError: it is no list of messages, or one has no role or no text.
    """
    if not isinstance(messages, list) or not messages:
        raise DataError(f'`{name}` must be a non-empty list of {{"role", "content"}}')
    checked = []
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise DataError(f"{name}[{place}] needs a role, one of {', '.join(ROLES)}")
        text = text_field(f"{name}[{place}].content", message.get("content"))
        checked.append({"role": message["role"], "content": text})
    return tuple(checked)


def text_field(name: str, value: Any) -> str:
    """The field `name` as text.

    Raises:
        DataError: it is no text, or holds nothing but white space.
    """
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{name} must be text that is not empty")
    return value


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not valid JSON, from column {error.colno} on: {error.msg}") from None


def _object(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"a line must be a JSON object, this is a {type(row).__name__}")
    return row


def _answer(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    raise DataError(f"answer must be text or a number, this is a {type(value).__name__}")
