"""What of a budget is refused before anything is begun: less than the least that leaves an adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import ceil

from flows.amounts import amount_told, enough_told
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.budget import KINDS, OF_THE_RUN
from flows.counts.ledger_tokens import Tokens
from flows.counts.part_tokens import least_needs, least_operations
from flows.durable.budget.account import NOISE, Account
from flows.durable.budget.month import month_of
from tasks.prices import Prices, prices_in
from whitney.client import WhitneyClient


def require_sense(inputs: Prepared, *, goes_on: bool) -> None:
    """Refuse a limit that leaves nothing useful, and prices that cannot be read, before anything is allocated.

    Raises:
        ConfigError: the limit is too small; names the least that makes sense.
        PriceError: the price file cannot be used.
    """
    config = inputs.config
    if not config.budget.is_set:
        return
    prices = prices_in(config.budget.prices)
    if goes_on:  # what is saved is worth ending well, however little is left
        return
    currency = prices.currency if prices else ""
    for field, limit in config.budget.limits(OF_THE_RUN).items():
        needed, of_what = _least(inputs, KINDS[field], prices)
        if needed > limit * (1 + NOISE):
            least = enough_told(KINDS[field], needed, currency)
            raise ConfigError(
                f"budget.{field} = {amount_told(KINDS[field], limit, currency)}: a run that leaves an adapter needs "
                f"{least} at least ({of_what}). Set it to {least} or more{_or_less(inputs)}"
            )


async def require_month(inputs: Prepared, client: WhitneyClient, *, goes_on: bool) -> None:
    """Refuse a run whose project has too little left of its month: it would pay for what leaves no adapter.

    Not where a person is to be asked, who may let it go on.

    Raises:
        ConfigError: too little is left, or the endpoint does not say how much was billed, or when.
        WhitneyError: it cannot be asked.
    """
    config = inputs.config.budget
    if goes_on or config.on_exceed == "pause":
        return
    month = await month_of(config, client)
    if month is None:
        return
    for field, limit in month.limits.items():
        needed, of_what = await asyncio.to_thread(_least, inputs, KINDS[field], month.prices)
        if month.used(field) + needed > limit * (1 + NOISE):
            raise ConfigError(_of_the_month(month, field, needed, of_what))


def _of_the_month(month: Account, field: str, needed: float, of_what: str) -> str:
    limit, used = (month.in_words(field, one) for one in (month.limits[field], month.used(field)))
    least, raised = (enough_told(KINDS[field], one, month.currency) for one in (needed, month.used(field) + needed))
    return (
        f"budget.{field} = {limit}: the runs of project {month.config.project!r} have used {used} this month, and one "
        f"more that leaves an adapter needs {least} at least ({of_what}). Set it to "
        f"{raised} or more, or wait for the next month"
    )


def _least(inputs: Prepared, kind: str, prices: Prices | None) -> tuple[float, str]:
    """The least of what a limit is of that leaves an adapter, and what it is made of."""
    if kind == "operations":
        operations = least_operations(inputs)
        return operations.total(), f"{_told(operations)}: {_parts(inputs)}"
    if kind == "minutes":  # nobody knows how fast the endpoint is
        return 0.0, ""
    needs = least_needs(inputs)
    if kind == "tokens":
        tokens = max((tokens for _, tokens in needs), key=lambda one: one.counted)
        of_what = f"{_told(_named(tokens))}, completions at their longest: {_parts(inputs)}"
        return ceil(tokens.counted), of_what
    assert prices is not None  # the configuration has it so
    costs = ((prices.cost(counts, tokens.by_kind), {**counts, **_named(tokens)}) for counts, tokens in needs)
    cost, counts = max(costs, key=lambda one: one[0])
    return cost, f"{_told(counts)}: {_parts(inputs)}"


def _parts(inputs: Prepared) -> str:
    before = "what is measured before, " if _measures(inputs) else ""
    return f"{before}the first block of {min(inputs.config.save_every, inputs.config.cycles)}, the export"


def _or_less(inputs: Prepared) -> str:
    """What else makes it less, where there is something to take away."""
    fewer = ["save_every"] if min(inputs.config.save_every, inputs.config.cycles) > 1 else []
    lowered = [*fewer, *(["what is measured"] if _measures(inputs) else [])]
    return f", or lower {' or '.join(lowered)}" if lowered else ""


def _measures(inputs: Prepared) -> bool:
    return bool(inputs.config.evaluation.enabled and inputs.heldout)


def _named(tokens: Tokens) -> dict[str, float]:
    return {f"{kind} tokens": count for kind, count in tokens.by_kind.items()}


def _told(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{ceil(count):,} {name}" for name, count in sorted(counts.items()) if count)
