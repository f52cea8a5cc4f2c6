"""How `whitney plan` comes to its plans: the reader's prices, an endpoint to ask, everything that a run checks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from pydantic import SecretStr

from algorithms import gpus
from cli.endpoint import endpoint, greet_named
from cli.failures import UsageError
from cli.plan_budget import month_warnings, require_budget
from cli.plan_options import Reckoning
from cli.prefect_api import prefect_api
from cli.served_for import served_for
from cli.terminal import Say
from flows.checks.prepare import prepare
from flows.checks.prepared import Prepared
from flows.config.pipeline import PipelineConfig
from flows.counts.lengths import Typical
from flows.load_config import AnyConfig
from flows.plan.earlier import as_in_an_earlier_run
from flows.plan.limits import budget_warnings
from flows.plan.plan import Plan, Terms, plan_in_full
from flows.plan.record import in_all
from flows.stages.checks import prepare_stages
from tasks.credentials import settings_for
from tasks.prices import prices_in
from whitney.client import WhitneyClient


def terms_of(said: Reckoning, configs: Sequence[AnyConfig]) -> list[Terms]:
    """What the command line says, for each configuration; the price file may also be its budget's.

    Raises:
        UsageError: a price file or a model's config.json cannot be used, or the GPU is not known.
    """
    sizes = said.sizes(configs)
    try:
        gpu = gpus.gpu(said.gpu) if said.gpu else None
        typical = Typical(said.completion_tokens, "option") if said.completion_tokens is not None else None
        files = [said.prices or config.budget.prices for config in configs]
        prices = [prices_in(file) for file in files]
    except ValueError as error:
        raise UsageError(str(error)) from error
    return [
        Terms(prices=priced, price_file=file, gpu=gpu, completion=typical, sizes=sizes)
        for priced, file in zip(prices, files, strict=True)
    ]


@contextmanager
def endpoint_for(configs: Sequence[AnyConfig], *, embedded: bool | None, say: Say) -> Iterator[None]:
    """Whitney as the configurations find it: what the environment names, or a gateway for as long as it takes."""
    with ExitStack() as stack:
        if any(config.credentials_block for config in configs):
            stack.enter_context(prefect_api(say))  # the block is on a Prefect server
        for block in dict.fromkeys(config.credentials_block for config in configs):
            if block is not None:
                greet_named(block, say)
        if served := [served_for(config) for config in configs if config.credentials_block is None]:
            models = list(dict.fromkeys(model for names, _ in served for model in names))
            stack.enter_context(endpoint(models, served[0][1], embedded=embedded, say=say))
        yield


async def plan_of(algorithm: str, config: AnyConfig, terms: Terms) -> Plan:
    """The plan, with examples and scored answers; of a pipeline that of every stage, and their sum.

    Raises:
        ConfigError, DataError, RenderingError, ModelError, WhitneyError: as for `flows.checks.prepare.prepare`; and a
            budget that leaves nothing useful is refused as a run refuses it.
    """
    settings = await asyncio.to_thread(settings_for, config.credentials_block)
    async with WhitneyClient(settings) as client:
        if isinstance(config, PipelineConfig):
            prepared = await prepare_stages(config, skipped=())
        else:
            own, found = await prepare(algorithm, config)
            await own.aclose()
            prepared = {algorithm: found}
        await require_budget(config, prepared, client)
        plans = {name: await _plan_of_run(one, terms, client, settings.api_key) for name, one in prepared.items()}
        if not isinstance(config, PipelineConfig):
            return plans[algorithm]
        whole = in_all(plans)
        of_run = budget_warnings(config.budget, whole.bill.limited, whole.currency)
        return replace(whole, warnings=[*of_run, *await month_warnings(config, whole, client)])


async def _plan_of_run(prepared: Prepared, terms: Terms, client: WhitneyClient, key: SecretStr) -> Plan:
    config = prepared.config
    earlier = None if terms.completion else as_in_an_earlier_run(prepared.algorithm, config)
    plan = await plan_in_full(prepared, replace(terms, completion=terms.completion or earlier), [key])
    return replace(plan, warnings=[*plan.warnings, *await month_warnings(config, plan, client)])
