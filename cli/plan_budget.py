"""What a budget makes of a plan: refused as a run would be refused, warned of where a month has too little left."""

from __future__ import annotations

from collections.abc import Mapping

from flows.checks.prepared import Prepared
from flows.config.budget import OF_THE_MONTH, OF_THE_RUN
from flows.config.pipeline import PipelineConfig
from flows.durable.budget.account import Account
from flows.durable.budget.month import spent_this_month
from flows.durable.budget.refusals import require_sense
from flows.load_config import AnyConfig
from flows.plan.limits import limit_warning
from flows.plan.plan import Plan
from flows.stages.budget import PipelineBudget
from flows.stages.checks import about
from tasks.prices import prices_in
from whitney.client import WhitneyClient
from whitney.types import RunUsage


async def require_sense_of_pipeline(config: PipelineConfig, prepared: Mapping[str, Prepared]) -> None:
    """Refuse limits that leave nothing useful: a stage's own, and the pipeline's, of its first stage.

    Raises:
        ConfigError: names the limit, and the least that makes sense.
        PriceError: the price file cannot be used.
    """
    for stage in config.stages:
        with about(stage):
            require_sense(prepared[stage.name], goes_on=False)
    prices = prices_in(config.budget.prices)
    account = Account("budget", "", config.budget, OF_THE_RUN, spent=RunUsage(), prices=prices)
    first = config.stages[0]
    await PipelineBudget(config, [account]).allows(first, prepared[first.name], done=0)


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
