"""Preferences: prompts with a chosen and a rejected reply, for DPO.

A line of a JSONL file is one of two forms. Both replies in one:

    {"prompt": "What is 7 + 5?", "chosen": "12", "rejected": "13"}

or one of the two, and the other, with the same `id`, in any other line:

    {"id": "a", "prompt": "What is 7 + 5?", "role": "chosen", "completion": "12"}

`messages` may stand for `prompt`. A reply is text, or a list of messages that ends with the assistant's; such a list
may hold the whole conversation, and then `prompt` may be left out. `answer`, `key` and anything else are what they are
in other data (`tasks.jsonl`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from tasks import data as data_sets
from tasks.data import DataSet, DataSource
from tasks.examples import DataError, Example, Message, Preference, preference
from tasks.jsonl import conversation, example_of_row, parse_lines, text_field

Role = Literal["chosen", "rejected"]
SIDES: tuple[Role, Role] = ("chosen", "rejected")


@dataclass(frozen=True, slots=True)
class Half:
    """One reply of a pair whose other reply stands in another line."""

    item: Example
    role: Role
    completion: str


def load(source: DataSource) -> DataSet:
    """As `tasks.data.load`, every example a `Preference`; `warnings` say what was left out.

    Raises:
        DataError: as there, and a source that holds no preferences.
    """
    notes: list[str] = []
    data = data_sets.load(source, partial(read_preferences, notes=notes))
    other = next((item for item in (*data.train, *data.heldout) if not isinstance(item, Preference)), None)
    if other is not None:
        raise DataError(
            f"{source.source} holds no preferences, {other.id} has no chosen and rejected reply: name a JSONL file of "
            "`prompt`, `chosen` and `rejected`, or addition-1digit-preferences"
        )
    return replace(data, warnings=(*data.warnings, *notes))


def preferences(examples: Iterable[Example]) -> list[Preference]:
    """Examples of a set that `load` has read, with the type they have."""
    return [cast("Preference", item) for item in examples]


def read_preferences(path: Path, notes: list[str] | None = None) -> list[Preference]:
    """Read a file of preferences, in the order of its lines (a pair in two lines stands where its second does).

    Two lines are a pair because of their `id`, never because one follows the other: a line that is missing costs its
    own pair and no other. Left out, each with a sentence in `notes`: a reply without its counterpart, and a pair whose
    two replies are the same, which has nothing to teach.

    Raises:
        DataError: the file cannot be read, a line is malformed, an id occurs twice, or no pair is left.
    """
    notes = [] if notes is None else notes
    pairs: list[Preference] = []
    alone: dict[str, tuple[int, Half]] = {}
    paired: dict[str, int] = {}
    same: list[int] = []
    for line, row in parse_lines(path, _pair_or_half):
        if isinstance(row, Preference):
            pair = row
        elif row.item.id in paired:
            raise DataError(f"{path}:{line}: id {row.item.id!r} was a whole pair in line {paired[row.item.id]} already")
        elif row.item.id in alone:
            pair = _join(path, alone.pop(row.item.id), (line, row))
            paired[pair.id] = line
        else:
            alone[row.item.id] = line, row
            continue
        if pair.chosen == pair.rejected:
            same.append(line)
        else:
            pairs.append(pair)
    _note(notes, path, [line for line, _ in alone.values()], "replies without the other reply of their id")
    _note(notes, path, same, "pairs whose two replies are the same")
    if not pairs:
        raise DataError(f"{path} holds no whole pair: {'; '.join(notes)}")
    return pairs


def _pair_or_half(row: dict[str, Any]) -> Preference | Half:
    if "chosen" in row or "rejected" in row:
        return _pair(row)
    role, completion = row.pop("role", None), row.pop("completion", None)
    if role not in SIDES:
        raise DataError(
            "a line needs `chosen` and `rejected`, or `id`, `completion` and a `role`, which is chosen or rejected"
            + ("" if role is None else f", not {role!r}")
        )
    if row.get("id") is None:
        raise DataError(f"a {role} reply in a line of its own needs the `id` that it shares with the other one")
    return Half(example_of_row(row), role, text_field("completion", completion))


def _pair(row: dict[str, Any]) -> Preference:
    replies = {side: _reply(side, row.pop(side, None)) for side in SIDES}
    befores = {before for before, _ in replies.values() if before}
    if befores and "prompt" not in row and "messages" not in row:
        row["messages"] = [dict(message) for message in next(iter(befores))]
    item = example_of_row(row)
    if befores - {_frozen(item.messages)}:
        raise DataError("`chosen` and `rejected` must be replies to one conversation: what goes before them differs")
    return preference(item, replies["chosen"][1], replies["rejected"][1])


Frozen = tuple[tuple[tuple[str, str], ...], ...]


def _reply(side: Role, value: Any) -> tuple[Frozen, str]:
    """(the messages before it, which may be none; the reply itself)."""
    if not isinstance(value, list):
        return (), text_field(side, value)
    *before, last = conversation(side, value)
    if last["role"] != "assistant":
        raise DataError(f"`{side}` must end with the assistant's message, it ends with the {last['role']}'s")
    return _frozen(before), last["content"]


def _frozen(messages: Iterable[Message]) -> Frozen:
    return tuple(tuple(sorted(message.items())) for message in messages)


def _join(path: Path, first: tuple[int, Half], second: tuple[int, Half]) -> Preference:
    (line, one), (other_line, other) = first, second
    if one.role == other.role:
        raise DataError(f"{path}:{other_line}: a second {one.role} reply of id {one.item.id!r}, after line {line}")
    if one.item.messages != other.item.messages:
        raise DataError(f"{path}:{other_line}: id {one.item.id!r} answers another prompt than in line {line}")
    replies: Mapping[Role, str] = {one.role: one.completion, other.role: other.completion}
    return preference(one.item, replies["chosen"], replies["rejected"])


def _note(notes: list[str], path: Path, lines: list[int], what: str) -> None:
    if lines:
        notes.append(f"{path.name}: left out {len(lines)} {what} (line {lines[0]} for one)")
