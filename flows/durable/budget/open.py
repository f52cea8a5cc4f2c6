"""How an attempt opens its budget: what earlier attempts were billed for is on it from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

from flows.config import BudgetConfig
from flows.config.budget import OF_THE_RUN
from flows.durable.budget.account import Account
from flows.durable.budget.billed import billed
from flows.durable.budget.gate import Budget
from flows.durable.budget.labels import raised
from flows.durable.budget.month import open_month
from flows.durable.budget.rest import Rest
from tasks.prices import prices_in
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.types import RunUsage


class Whole(NamedTuple):
    """What a stage has of its pipeline."""

    accounts: tuple[Account, ...] = ()
    project: str | None = None
    stopped: Callable[[], AbstractContextManager[None]] = nullcontext
    """Stops the pipeline's stopwatch, as long as a person is asked within a stage."""
    later: Callable[[], Rest] = Rest
    """What the stages after it need."""


ALONE = Whole()
WHOLE: ContextVar[Whole] = ContextVar("budget of the pipeline that a training flow is a stage of", default=ALONE)


async def open_budget(
    config: BudgetConfig, client: WhitneyClient, flow_run_id: str, seconds: Callable[[], float]
) -> Budget:
    """The gate of an attempt, with what all earlier ones were billed for; behind the pipeline's, where it is a stage.

    Raises:
        ConfigError, WhitneyError: the endpoint does not say what was billed: what cannot be counted is not begun.
    """
    accounts = list(WHOLE.get().accounts)
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
    prices = await asyncio.to_thread(prices_in, config.prices)
    account = Account(name, flow_run_id, config, OF_THE_RUN, spent=spent, prices=prices, seconds=seconds)
    for field, more in await raised(flow_run_id, account.limits):
        account.raise_limit(field, more)
    return account


def project_of_pipeline() -> str | None:
    """The project of the pipeline that this is a stage of."""
    return WHOLE.get().project
