"""docs/plan.schema.json: what `whitney plan --json` prints, as JSON Schema. `make docs` writes it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from flows.plan.plan import Plan


def plan_schema() -> dict[str, Any]:
    """Of one plan, which is also what a run keeps as plan.json; or of two, where two configurations are compared."""
    schema = TypeAdapter(Plan | list[Plan]).json_schema(mode="serialization")
    for definition in schema["$defs"].values():
        _describe(definition)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "whitney plan --json", **schema}


def _describe(definition: dict[str, Any]) -> None:
    """A class's docstring taken apart: what it is stays with it, what is said of a field goes to the field."""
    text = inspect.cleandoc(definition.get("description", ""))
    what, *sections = re.split(r"\n\n(?=(?:Args|Raises):\n)", text)
    definition["description"] = " ".join(what.split())
    for section in sections:
        for name, said in _fields(section):
            if name in definition.get("properties", {}):
                definition["properties"][name]["description"] = said


def _fields(section: str) -> Iterator[tuple[str, str]]:
    """Name and text of each field; further lines of a text are indented more."""
    for entry in re.split(r"\n {4}(?=\w)", section)[1:]:
        name, _, said = entry.partition(":")
        yield name, " ".join(said.split())


if __name__ == "__main__":
    print(json.dumps(plan_schema(), indent=2, ensure_ascii=False))
