"""The plan that a run begins with: plan.json of its folder, and what of it stands in the summary beside the bill."""

from __future__ import annotations

import asyncio
from typing import Any

from flows.checks.prepared import Prepared
from flows.counts.lengths import Typical
from flows.plan.earlier import as_in_an_earlier_run
from flows.plan.plan import Terms, plan_of_run
from tasks.planned import PARTS
from tasks.prices import prices_in
from tasks.run_folder import RunFolder


async def keep_plan(inputs: Prepared, folder: RunFolder) -> None:
    """Write plan.json: what `whitney plan` would say now, without options.

    An attempt whose configuration has been changed, and may be, has another plan than the first.
    """
    file = inputs.config.budget.prices
    typical = await asyncio.to_thread(_completion, inputs, folder)
    terms = Terms(prices=prices_in(file), price_file=file, completion=typical)
    folder.write_plan((await plan_of_run(inputs, terms)).as_json())


def _completion(inputs: Prepared, folder: RunFolder) -> Typical | None:
    """How long a completion typically is. As the first attempt took it: what has run since is no news to the plan."""
    config = inputs.config
    if folder.read_plan() is None:
        return as_in_an_earlier_run(inputs.algorithm, config)
    before = _part(folder, "assumptions")
    if before.get("completion_tokens_source") != "earlier_run":
        return None
    return Typical(min(before["completion_tokens"], config.sampling.max_tokens), "earlier_run", before["earlier_run"])


def planned(folder: RunFolder) -> dict[str, Any] | None:
    """Operations and tokens of plan.json; None where it is gone, or damaged: no run is to fail for that at its end."""
    parts = {part: _part(folder, part) for part in PARTS}
    return parts if all(parts.values()) else None


def planned_cost(folder: RunFolder) -> dict[str, float] | None:
    """Money of plan.json, in the price file's currency; None without prices."""
    return _part(folder, "cost") or None


def planned_completion(folder: RunFolder) -> float | None:
    """Tokens of a typical completion, as plan.json has it; None where none is sampled."""
    tokens: float | None = _part(folder, "assumptions").get("completion_tokens")
    return tokens


def _part(folder: RunFolder, name: str) -> dict[str, Any]:
    found = (folder.read_plan() or {}).get(name)
    return found if isinstance(found, dict) else {}
