"""What of a pipeline's budgets is refused before anything is begun: limits that leave no adapter."""

from __future__ import annotations

from collections.abc import Mapping

from flows.checks.prepared import Prepared
from flows.config.budget import OF_THE_RUN
from flows.config.pipeline import PipelineConfig
from flows.durable.budget.account import Account
from flows.durable.budget.refusals import require_sense
from flows.stages.budget import PipelineBudget
from flows.stages.checks import about
from tasks.prices import prices_in
from whitney.types import RunUsage


async def require_sense_of_pipeline(
    config: PipelineConfig, prepared: Mapping[str, Prepared], month: Account | None = None
) -> None:
    """Refuse limits that leave nothing useful: a stage's own, and the pipeline's and its project's of the first stage.

    Args:
        config: the pipeline's.
        prepared: the stages that are to be trained, by name.
        month: of its project; None where that is not asked for.

    Raises:
        ConfigError: names the limit, and the least that makes sense.
        PriceError: the price file cannot be used.
    """
    for stage in config.stages:
        if stage.name in prepared:
            with about(stage):
                require_sense(prepared[stage.name], goes_on=False)
    first = config.stages[0]
    if first.name in prepared:
        prices = prices_in(config.budget.prices)
        own = Account("budget", "", config.budget, OF_THE_RUN, spent=RunUsage(), prices=prices)
        accounts = [own, month] if month else [own]
        await PipelineBudget(config, accounts).allows(first, prepared[first.name], done=0)
