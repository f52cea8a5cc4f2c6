"""That a limit of a pipeline's budget has stopped it, as the pipeline tells it: there the limit is `budget`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.checks.prepared import Prepared
from flows.config.budget import OF_THE_MONTH
from flows.early_end import BudgetReachedError
from tasks.stopped import OF_PIPELINE

NAME = f"{OF_PIPELINE}budget"
"""How a stage is told of a limit that is the pipeline's; in the pipeline's own file it is `budget`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """What has stopped it.

    Args:
        why: the sentence that a stage is told.
        path: the limit, as a stage is told of it.
        go_on_with: the higher limit that would bring the pipeline to its end; None where nobody knows.
    """

    why: str
    path: str
    go_on_with: float | None = None

    @property
    def told(self) -> str:
        """For `stopped` of the summary."""
        return self.why.replace(OF_PIPELINE, "")

    @property
    def limit(self) -> str:
        """The limit, by its path in the pipeline's own file."""
        return self.path.removeprefix(OF_PIPELINE)


def stop_within(summary: Mapping[str, Any]) -> Stop | None:
    """What a stage's summary says of a limit of the pipeline's; None where none has stopped it."""
    budget = summary.get("budget") or {}
    reached = budget.get("reached") or ""
    if not reached.startswith(f"{NAME}."):
        return None
    return Stop(str(summary["stopped"]), reached, budget.get("go_on_with"))


def too_little(reached: BudgetReachedError, first: Prepared) -> str:
    """Why a pipeline is refused whose limit does not suffice for its first stage, and what to do."""
    later = ", or wait for the next month" if reached.field in OF_THE_MONTH else ""
    sooner = ", or lower the stage's save_every" if first.config.save_every > 1 else ""
    return (
        f"budget.{reached.field} = {reached.told(reached.limit)}: {reached.told(reached.used)} used, and the first "
        f"stage needs {reached.told_enough(reached.needed)} more to leave an adapter. Set it to "
        f"{reached.told_enough(reached.used + reached.needed)} or more{later}{sooner}"
    )
