"""The `[budget]` table: what a run may be billed for. Without a limit in it nothing is counted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from flows.config.sections import Section

# Upper bounds as everywhere: far beyond any use. Tokens are counted by the billion, so theirs is beyond `PositiveInt`.
Count = Annotated[int, Field(ge=1, le=10**15)]
Amount = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
ProjectName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]

OF_THE_RUN = {
    "max_operations": "operations",
    "max_tokens": "tokens",
    "max_cost": "cost",
    "max_minutes": "minutes",
}
"""Limits of a run over all its attempts, each with what it is a limit of."""
OF_THE_MONTH = {"max_operations_per_month": "operations", "max_cost_per_month": "cost"}
"""Limits of all runs of a project in a calendar month."""
KINDS = OF_THE_RUN | OF_THE_MONTH
"""Every limit, with what it is a limit of."""


class BudgetConfig(Section):
    """What a run may be billed for, all attempts together. Asked before every operation; off by default."""

    max_operations: Count | None = Field(
        None, description="Whitney operations of every kind, those that end the run included."
    )
    max_tokens: Count | None = Field(
        None,
        description="Tokens prefilled, sampled and trained. Before it is posted, an operation counts with all that it "
        "may be billed for (num_samples × max_tokens); after it, with what it was.",
    )
    max_cost: Amount | None = Field(None, description="Money by the price file, in its currency.")
    max_minutes: Amount | None = Field(
        None,
        description="Minutes at work; not those in which a person is asked. An operation that is posted runs to its "
        "end.",
    )
    warn_at: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="Share of a limit at which there is a warning, once."
    )
    on_exceed: Literal["stop", "pause"] = Field(
        "stop",
        description='"stop": the run ends, Completed, with the adapter of the last saved block; a resume with a '
        'higher limit goes on. "pause": a person is asked, with nothing held, and may raise it.',
    )
    timeout_hours: Annotated[float, Field(gt=0, le=8760)] = Field(
        24.0, description="Hours that a pause waits for an answer; then the run fails, with what is saved."
    )
    prices: Path | None = Field(None, description="Price file, for max_cost; `whitney init prices` writes one.")
    project: ProjectName | None = Field(
        None, description="Project whose runs share the limits by month; a label of their sessions."
    )
    max_operations_per_month: Count | None = Field(
        None,
        description="Operations of all the project's sessions that began in this calendar month (UTC), as the endpoint "
        "counts them; asked for anew at each block.",
    )
    max_cost_per_month: Amount | None = Field(None, description="The same in money, without the price of time.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("max_cost", "max_cost_per_month"):
            if getattr(self, name) is not None and self.prices is None:
                raise ValueError(f"{name} needs prices: name a price file; `whitney init prices` writes one")
        for name in OF_THE_MONTH:
            if getattr(self, name) is not None and self.project is None:
                raise ValueError(f"{name} needs project: the name that the runs it counts have in common")
        return self

    def limits(self, names: Iterable[str]) -> dict[str, float]:
        """Those of `names` that are set, by name."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def is_set(self) -> bool:
        """Whether there is anything to count."""
        return bool(self.limits(KINDS))

    @property
    def timeout_s(self) -> float:
        """How long a pause waits, in seconds."""
        return self.timeout_hours * 3600
