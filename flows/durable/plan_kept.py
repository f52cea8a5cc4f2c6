"""The plan that a run begins with: plan.json of its folder, and what of it stands in the summary beside the bill."""

from __future__ import annotations

from typing import Any

from flows.checks.prepared import Prepared
from flows.plan.plan import Terms, plan_of_run
from tasks.planned import PARTS
from tasks.prices import prices_in
from tasks.run_folder import RunFolder


async def keep_plan(inputs: Prepared, folder: RunFolder) -> None:
    """Write plan.json. An attempt whose configuration has been changed, and may be, has another plan than the first.

    It goes by no earlier run, as `whitney plan` may: all attempts at a run are to plan the same.
    """
    file = inputs.config.budget.prices
    terms = Terms(prices=prices_in(file), price_file=file)
    folder.write_plan((await plan_of_run(inputs, terms)).as_json())


def planned(folder: RunFolder) -> dict[str, Any] | None:
    """Operations and tokens of plan.json; None where it is gone."""
    plan = folder.read_plan()
    return None if plan is None else {part: plan[part] for part in PARTS}


def planned_cost(folder: RunFolder) -> dict[str, float] | None:
    """Money of plan.json, in the price file's currency; None without prices."""
    cost: dict[str, float] | None = (folder.read_plan() or {}).get("cost")
    return cost


def planned_completion(folder: RunFolder) -> float | None:
    """Tokens of a typical completion, as plan.json has it; None where none is sampled."""
    tokens: float | None = (folder.read_plan() or {}).get("assumptions", {}).get("completion_tokens")
    return tokens
