"""How an attempt opens its budget: what earlier attempts were billed for is on it from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from math import ceil
from typing import NamedTuple

from flows.checks.planned_cost import Tokens
from flows.checks.planned_part_tokens import least_needs, least_operations
from flows.checks.prepared import Prepared
from flows.config import BudgetConfig, ConfigError
from flows.config.budget import OF_THE_RUN
from flows.durable.account import NOISE, Account
from flows.durable.budget import Budget
from flows.durable.budget_labels import raised
from flows.durable.budget_month import open_month
from tasks.lineage import summed
from tasks.prices import Prices, read_prices
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.types import RunUsage, Session


class Whole(NamedTuple):
    """What a stage has of its pipeline."""

    accounts: tuple[Account, ...] = ()
    project: str | None = None


WHOLE: ContextVar[Whole] = ContextVar("budget of the pipeline that a training flow is a stage of")
ALONE = Whole()


def require_sense(inputs: Prepared, *, goes_on: bool) -> None:
    """Refuse a limit that leaves nothing useful, and prices that cannot be read, before anything is allocated.

    Raises:
        ConfigError: the limit is too small; names the least that makes sense.
        PriceError: the price file cannot be used.
    """
    config = inputs.config
    if not config.budget.is_set:
        return
    prices = _prices(config.budget)
    if goes_on:  # what is saved is worth ending well, however little is left
        return
    for field, limit in config.budget.limits(OF_THE_RUN).items():
        needed, of_what = _least(inputs, OF_THE_RUN[field], prices)
        if needed > limit * (1 + NOISE):
            raise ConfigError(
                f"budget.{field} = {limit:,.10g}: a run that leaves an adapter needs {needed:,.10g} at least "
                f"({of_what}: what is measured before, the first block of {min(config.save_every, config.cycles)}, the "
                f"export). Set it to {needed:,.10g} or more, or lower save_every, or what is measured"
            )


def _least(inputs: Prepared, kind: str, prices: Prices | None) -> tuple[float, str]:
    """The least of what a limit is of that leaves an adapter, and what it is made of."""
    if kind == "operations":
        operations = least_operations(inputs)
        return operations.total(), _told(operations)
    if kind == "minutes":  # nobody knows how fast the endpoint is
        return 0.0, ""
    needs = least_needs(inputs)
    if kind == "tokens":
        tokens = max((tokens for _, tokens in needs), key=lambda one: one.counted)
        return ceil(tokens.counted), f"{_told(_named(tokens))}, completions at their longest"
    assert prices is not None  # the configuration has it so
    return max((prices.cost(counts, tokens.by_kind), _told({**counts, **_named(tokens)})) for counts, tokens in needs)


def _named(tokens: Tokens) -> dict[str, float]:
    return {f"{kind} tokens": count for kind, count in tokens.by_kind.items()}


def _told(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{ceil(count):,} {name}" for name, count in sorted(counts.items()) if count)


async def open_budget(
    config: BudgetConfig, client: WhitneyClient, flow_run_id: str, seconds: Callable[[], float]
) -> Budget:
    """The gate of an attempt, with what all earlier ones were billed for; behind the pipeline's, where it is a stage.

    Raises:
        WhitneyError: the endpoint does not say what was billed: what cannot be counted is not begun.
    """
    accounts = list(WHOLE.get(ALONE).accounts)
    if config.limits(OF_THE_RUN):
        spent = billed(await client.list_sessions(label=(FLOW_RUN, flow_run_id)))
        accounts.insert(0, await open_account("budget", flow_run_id, config, spent, seconds))
    if month := await open_month("budget", flow_run_id, config, client):
        accounts.insert(0, month)
    return Budget(accounts)


async def open_account(
    name: str, flow_run_id: str, config: BudgetConfig, spent: RunUsage, seconds: Callable[[], float]
) -> Account:
    """The account of a run's own limits, or of a pipeline's, with what a person has raised them by."""
    prices = await asyncio.to_thread(_prices, config)
    account = Account(name, flow_run_id, config, OF_THE_RUN, spent=spent, prices=prices, seconds=seconds)
    for field, more in await raised(flow_run_id, account.limits):
        account.raise_limit(field, more)
    return account


def project_of_pipeline() -> str | None:
    """The project of the pipeline that this is a stage of."""
    return WHOLE.get(ALONE).project


def billed(sessions: Iterable[Session]) -> RunUsage:
    """What the runs of some sessions were billed for."""
    return summed(run.usage for session in sessions for run in session.runs)


def _prices(config: BudgetConfig) -> Prices | None:
    return read_prices(config.prices) if config.prices else None
