"""docs/plan.schema.json: what `whitney plan --json` prints, as JSON Schema. `make docs` writes it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from flows.checks.plan import Plan


def plan_schema() -> dict[str, Any]:
    """Of one plan, which is also what a run keeps as plan.json; or of two, where two configurations are compared."""
    schema = TypeAdapter(Plan | list[Plan]).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "whitney plan --json", **schema}


if __name__ == "__main__":
    print(json.dumps(plan_schema(), indent=2, ensure_ascii=False))
