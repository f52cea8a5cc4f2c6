"""What a budget makes of a plan: refused as a run is refused, warned of where a month has too little left for all."""

from __future__ import annotations

from collections.abc import Mapping

from flows.checks.prepared import Prepared
from flows.config.pipeline import PipelineConfig
from flows.durable.budget.month import month_of
from flows.durable.budget.refusals import require_month, require_sense
from flows.load_config import AnyConfig
from flows.plan.limits import limit_warning
from flows.plan.plan import Plan
from flows.stages.checks import about
from flows.stages.refusals import require_sense_of_pipeline
from whitney.client import WhitneyClient


async def require_budget(config: AnyConfig, prepared: Mapping[str, Prepared], client: WhitneyClient) -> None:
    """Refuse limits of a run and of its project's month that leave no adapter; of a pipeline, its stages' own, too.

    Args:
        config: an algorithm's, or a pipeline's.
        prepared: its checked inputs; of a pipeline by stage.
        client: of the endpoint that counts what a project was billed for.

    Raises:
        ConfigError: names the limit, and the least that makes sense; or the endpoint does not say when a session began.
        PriceError: the price file cannot be used.
        WhitneyError: the endpoint cannot be asked.
    """
    if not isinstance(config, PipelineConfig):
        (inputs,) = prepared.values()
        require_sense(inputs, goes_on=False)
        await require_month(inputs, client, goes_on=False)
        return
    await require_sense_of_pipeline(config, prepared, await month_of(config.budget, client))
    for stage in config.stages:
        with about(stage):
            await require_month(prepared[stage.name], client, goes_on=False)


async def month_warnings(config: AnyConfig, plan: Plan, client: WhitneyClient) -> list[str]:
    """Limits of a project's month that leave too little for the plan, as the endpoint counts what is used.

    Raises:
        ConfigError: the endpoint does not say when a session began.
        WhitneyError: it cannot be asked.
    """
    month = await month_of(config.budget, client)
    if month is None:
        return []
    warnings = (
        limit_warning(
            name, limit, plan.bill.limited[name], month.currency, used=month.used(name), by=config.budget.project
        )
        for name, limit in month.limits.items()
    )
    return [one for one in warnings if one]
