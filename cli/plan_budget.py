"""What a project's month makes of a plan: a warning where it has too little left."""

from __future__ import annotations

from flows.config.budget import OF_THE_MONTH
from flows.durable.budget.account import Account
from flows.durable.budget.month import spent_this_month
from flows.load_config import AnyConfig
from flows.plan.limits import limit_warning
from flows.plan.plan import Plan
from tasks.prices import prices_in
from whitney.client import WhitneyClient


async def month_warnings(config: AnyConfig, plan: Plan, client: WhitneyClient) -> list[str]:
    """Limits of a project's month that leave too little for the plan, as the endpoint counts what is used.

    Raises:
        ConfigError: the endpoint does not say when a session began.
        WhitneyError: it cannot be asked.
    """
    budget = config.budget
    if budget.project is None or not budget.limits(OF_THE_MONTH):
        return []
    prices = prices_in(budget.prices)
    spent = await spent_this_month(client, budget.project)
    account = Account("budget", "", budget, OF_THE_MONTH, spent=spent, prices=prices)
    warnings = (
        limit_warning(
            name, limit, plan.bill.limited[name], account.currency, used=account.used(name), by=budget.project
        )
        for name, limit in account.limits.items()
    )
    return [one for one in warnings if one]
