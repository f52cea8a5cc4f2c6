"""That a run has stopped before its end, in words: why, what it has left out, and how it is gone on with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

Summary = Mapping[str, Any]

OF_PIPELINE = "pipeline."
"""Begins the path of a limit that a stage has of its pipeline."""

MORE = "MORE"
"""Stands for a number that is not known."""


def stopped_by_budget(summary: Summary | None) -> str | None:
    """The limit that has stopped a run, by its path in the configuration; None of any other run."""
    budget = (summary or {}).get("budget")
    reached = budget.get("reached") if isinstance(budget, dict) else None
    return reached if isinstance(reached, str) else None


def why_stopped(summary: Summary) -> str | None:
    """The rule or the limit, in a sentence; None where it came to its end."""
    stopped = summary.get("stopped")
    return str(stopped).replace(OF_PIPELINE, "") if stopped else None


def left_out(summary: Summary) -> str:
    """What of its plan a run has not done that its budget has stopped."""
    return ", ".join(summary["budget"].get("left_out", [])) or "nothing"


def command_to_go_on(summary: Summary) -> str | None:
    """What brings such a run further, with the limit that is likely to bring it to its end; None where nothing does.

    A stage goes on with its pipeline. One that a limit of its own has stopped is finished.
    """
    limit = stopped_by_budget(summary)
    if limit is None:
        return None
    folder, more = Path(summary["run_folder"]), summary["budget"].get("go_on_with", MORE)
    if limit.startswith(OF_PIPELINE):
        folder = folder.parent
    if more is None:
        return None
    value = more if more == MORE else digits(more)
    return f"whitney run --resume {shlex.quote(str(folder))} --set {limit.removeprefix(OF_PIPELINE)}={value}"


def planned_of(summary: Summary) -> str:
    """What a plan is of that stands beside the bill of less; "" where it is of no more than was done."""
    if not summary.get("stopped"):
        return ""
    return "the stages that have begun" if "stages" in summary else "the whole run"


def used_up(summary: Summary | None, limits: Mapping[str, float]) -> str | None:
    """Of some limits, by their paths, the first that a run has used up already, in a sentence; None where none is."""
    budget = (summary or {}).get("budget") or {}
    for path, limit in limits.items():
        used = budget.get("used", {}).get(path, {}).get("used", 0)
        if used < limit:
            continue
        enough = budget.get("go_on_with") if budget.get("reached") == path else None
        likely = f"; {digits(enough)} would likely bring it to its end" if enough else ""
        return f"{path} = {digits(limit)}: {digits(used)} are used already, and stay on the bill: set more{likely}"
    return None


def stopped_markdown(summary: Summary) -> str:
    """The first thing that a page says of such a run; "" of one that came to its end."""
    why = why_stopped(summary)
    return "\n".join([f"**Stopped early**: {why}", *_of_budget(summary)]) if why else ""


def _of_budget(summary: Summary) -> Iterator[str]:
    if not stopped_by_budget(summary):
        return
    yield f"\n- left out: {left_out(summary)}"
    if command := command_to_go_on(summary):
        yield f"- to go on: `{command}`"


def digits(value: float) -> str:
    """A number as a configuration takes it, without an exponent."""
    return str(int(value)) if float(value).is_integer() else format(Decimal(repr(value)), "f")
