"""A project's month: what the sessions of all its runs were billed for, as the endpoint counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from flows.config import BudgetConfig, ConfigError
from flows.config.budget import OF_THE_MONTH
from flows.durable.budget.account import Account
from flows.durable.budget.billed import billed
from flows.durable.budget.labels import raised
from tasks.prices import Prices, prices_in
from whitney.client import WhitneyClient
from whitney.labels import PROJECT
from whitney.types import RunUsage, Session


class Month(Account):
    """What all runs of a project are billed for from the month on that it was opened in.

    The sessions that had begun before are told by their ids, and every other one counts. So neither the month's turn
    nor two clocks that do not agree take what a run itself is billed for from its account.
    """

    __slots__ = ("_earlier", "_project")

    def __init__(
        self,
        name: str,
        owner: str,
        config: BudgetConfig,
        *,
        project: str,
        sessions: Sequence[Session],
        prices: Prices | None,
    ) -> None:
        began = _month_began()
        self._project = project
        self._earlier = frozenset(one.session_id for one in sessions if _began(one) < began)
        super().__init__(name, owner, config, OF_THE_MONTH, spent=self._since(sessions), prices=prices)

    async def look_again(self, client: WhitneyClient) -> None:
        """Count anew what was billed: others are at work, too.

        Only where nothing is posted and not settled, for the endpoint's count takes the place of ours.

        Raises:
            ConfigError: the endpoint does not say what was billed.
            WhitneyError: it cannot be asked.
        """
        self.counted.restart(self._since(await client.list_sessions(label=(PROJECT, self._project))))

    def _since(self, sessions: Sequence[Session]) -> RunUsage:
        return billed(one for one in sessions if one.session_id not in self._earlier)


async def open_month(name: str, flow_run_id: str, config: BudgetConfig, client: WhitneyClient) -> Month | None:
    """The account of the project's month, with what a person has raised it by; None where no limit is set.

    Raises:
        ConfigError, WhitneyError: as `month_of`.
    """
    account = await month_of(config, client, name=name, flow_run_id=flow_run_id)
    if account is not None:
        for field, more in await raised(flow_run_id, account.limits):
            account.raise_limit(field, more)
    return account


async def month_of(
    config: BudgetConfig, client: WhitneyClient, *, name: str = "budget", flow_run_id: str = ""
) -> Month | None:
    """The same of what is still to begin, so that nobody can have raised it.

    Raises:
        ConfigError, WhitneyError: as `spent_this_month`.
        PriceError: the price file cannot be used.
    """
    project = config.project
    if project is None or not config.limits(OF_THE_MONTH):
        return None
    prices = await asyncio.to_thread(prices_in, config.prices)
    sessions = await client.list_sessions(label=(PROJECT, project))
    return Month(name, flow_run_id, config, project=project, sessions=sessions, prices=prices)


async def spent_this_month(client: WhitneyClient, project: str) -> RunUsage:
    """What a project's sessions that began in this calendar month (UTC) were billed for.

    Raises:
        ConfigError: the endpoint does not say when a session began, or what was billed for it.
        WhitneyError: it cannot be asked.
    """
    began = _month_began()
    sessions = await client.list_sessions(label=(PROJECT, project))
    return billed(session for session in sessions if _began(session) >= began)


def _month_began() -> datetime:
    """When the calendar month has begun, in UTC."""
    return datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _began(session: Session) -> datetime:
    try:
        began = datetime.fromisoformat(session.created_at or "")
    except ValueError as error:
        raise ConfigError(
            "budget: limits by month need an endpoint that says when a session began (created_at, ISO 8601), and this "
            f"one says {session.created_at!r} of {session.session_id}: leave {' and '.join(OF_THE_MONTH)} out"
        ) from error
    return began if began.tzinfo else began.replace(tzinfo=UTC)
