"""A project's month: what the sessions of all its runs were billed for, as the endpoint counts them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from flows.config import BudgetConfig, ConfigError
from flows.config.budget import OF_THE_MONTH
from flows.durable.budget.account import Account
from flows.durable.budget.billed import billed
from flows.durable.budget.labels import raised
from tasks.prices import prices_in
from whitney.client import WhitneyClient
from whitney.labels import PROJECT
from whitney.types import RunUsage, Session


async def open_month(name: str, flow_run_id: str, config: BudgetConfig, client: WhitneyClient) -> Account | None:
    """The account of the project's month; None where no limit is set.

    Raises:
        ConfigError: as `spent_this_month`.
    """
    if config.project is None or not config.limits(OF_THE_MONTH):
        return None
    prices = await asyncio.to_thread(prices_in, config.prices)
    spent = await spent_this_month(client, config.project)
    account = Account(name, flow_run_id, config, OF_THE_MONTH, spent=spent, prices=prices)
    for field, more in await raised(flow_run_id, account.limits):
        account.raise_limit(field, more)
    return account


async def look_again(account: Account, client: WhitneyClient) -> None:
    """Count anew what all runs of a project were billed for: others are at work, too. Of a run's own limits: nothing.

    Only where nothing is posted and not settled, for the endpoint's count takes the place of ours.
    """
    if account.of_the_month and account.config.project is not None:
        account.counted.restart(await spent_this_month(client, account.config.project))


async def spent_this_month(client: WhitneyClient, project: str) -> RunUsage:
    """What a project's sessions that began in this calendar month (UTC) were billed for.

    Raises:
        ConfigError: the endpoint does not say when a session began, or what was billed for it.
        WhitneyError: it cannot be asked.
    """
    month = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    sessions = await client.list_sessions(label=(PROJECT, project))
    return billed(session for session in sessions if _began(session) >= month)


def _began(session: Session) -> datetime:
    try:
        began = datetime.fromisoformat(session.created_at or "")
    except ValueError as error:
        raise ConfigError(
            "budget: limits by month need an endpoint that says when a session began (created_at, ISO 8601), and this "
            f"one says {session.created_at!r} of {session.session_id}: leave {' and '.join(OF_THE_MONTH)} out"
        ) from error
    return began if began.tzinfo else began.replace(tzinfo=UTC)
