"""What is wrong with a configuration, in a sentence a mistake: the field, its value, what may stand there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from algorithms.names import did_you_mean


def mistakes(model: type[BaseModel], error: ValidationError, table: Any = None) -> list[str]:
    """A line for each mistake that pydantic has found in a table for `model`; with the table, entries have their names.

    What a model says of its table as a whole has its lines and fields in it already, and stays as it is.
    """
    lines: list[str] = []
    for issue in error.errors(include_url=False):
        whole = issue["type"] == "value_error" and not issue["loc"]
        lines += str(issue["ctx"]["error"]).splitlines() if whole else [_explain(model, dict(issue), table)]
    return lines


def _explain(model: type[BaseModel], issue: dict[str, Any], table: Any) -> str:
    path = _path(issue["loc"], table)
    if issue["type"] == "extra_forbidden":
        known = _fields_at(model, issue["loc"][:-1])
        return f"unknown field {path!r}: {did_you_mean(str(issue['loc'][-1]), known)}known: {', '.join(sorted(known))}"
    if issue["type"] == "missing":  # its input is the whole table, which would only hide the field's name
        return f"{path} is missing: {_description(model, issue['loc'])}"
    said = issue["msg"].removeprefix("Value error, ")
    said = f"{said[0].lower()}{said[1:]}"
    if isinstance(issue["input"], dict) and issue["type"] == "value_error":
        return _of_a_table(path, issue["input"], said)
    return f"{path} = {_shown(issue['input'])}: {said}"


def _of_a_table(path: str, table: dict[str, Any], said: str) -> str:
    """What is wrong with two fields of a table together: it begins with the name of one, whose value is to be seen."""
    field, _, rest = said.partition(" ")
    if field not in table:
        return f"{path}: {said}"
    return f"{path}.{said}" if rest.startswith("= ") else f"{path}.{field} = {_shown(table[field])}: {rest}"


def _shown(value: object) -> str:
    told = repr(value)
    return told if len(told) <= 80 else told[:77] + "…"


def _path(loc: Iterable[str | int], table: Any) -> str:
    """As it is said everywhere: rewards[0].function, stages.rl.on_fail, which `--set` takes, too."""
    path, here = "", table
    for part in loc:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            here = None
        if isinstance(part, int):
            name = (here.get("name") or here.get("algorithm")) if isinstance(here, dict) else None
            path += f".{name}" if name else f"[{part}]"
        else:
            path += f".{part}"
    return path.removeprefix(".")


def _description(model: type[BaseModel], loc: tuple[str | int, ...]) -> str:
    field = _section_at(model, loc[:-1]).model_fields.get(str(loc[-1]))
    return (field and field.description) or "it has no default"


def _fields_at(model: type[BaseModel], loc: Iterable[str | int]) -> list[str]:
    """Names of the fields of the section that `loc` leads to."""
    return list(_section_at(model, loc).model_fields)


def _section_at(model: type[BaseModel], loc: Iterable[str | int]) -> type[BaseModel]:
    here: Any = model
    for part in loc:
        if isinstance(part, int):
            continue
        annotation = here.model_fields[part].annotation
        inner = [a for a in (annotation, *getattr(annotation, "__args__", ())) if isinstance(a, type)]
        here = next((a for a in inner if issubclass(a, BaseModel)), here)
    section: type[BaseModel] = here
    return section
