"""Limits of a budget that a plan comes to: they may end the run early, or are sure to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from algorithms.spans import Span
from flows.amounts import amount_told
from flows.config.budget import KINDS, OF_THE_RUN, BudgetConfig


def budget_warnings(budget: BudgetConfig, planned: Mapping[str, Span | None], currency: str | None) -> Iterator[str]:
    """The run's own limits that are too low; `planned` has what they limit, by the limit's name."""
    for name, limit in budget.limits(OF_THE_RUN).items():
        if warning := limit_warning(name, limit, planned[name], currency):
            yield warning


def limit_warning(
    name: str, limit: float, span: Span | None, currency: str | None, *, used: float = 0.0, by: str | None = None
) -> str | None:
    """What to say of one limit; None where the plan stays below it, or does not know what it comes to.

    Args:
        name: the limit's own: "max_tokens".
        limit: its value.
        span: what is planned of it.
        currency: of a limit on money.
        used: what is used of it before the run begins.
        by: the project that has used it.
    """
    left = max(0.0, limit - used)
    if span is None or span.most <= left:
        return None

    def told(amount: float) -> str:
        return amount_told(KINDS[name], amount, currency or "")

    verb = "will" if span.typical > left else "may"
    before = f"{told(used)} are used by {by!r}, {told(left)} are left, and " if by else ""
    planned = f"{told(span.typical)} are typical, {told(span.most)} the most"
    return f"budget.{name} = {told(limit)} {verb} end it early: {before}{planned}."
