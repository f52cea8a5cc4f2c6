"""How `whitney plan` comes to its plans: the reader's prices, an endpoint to ask, everything that a run checks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from algorithms import gpus
from algorithms.gpus import Gpu
from cli.endpoint import endpoint
from cli.failures import UsageError
from cli.prefect_api import prefect_api
from cli.served_for import served_for
from cli.terminal import Say
from flows.checks.plan import Plan, plan_in_full
from flows.checks.plan_record import in_all
from flows.checks.prepare import prepare
from flows.config.pipeline import PipelineConfig
from flows.load_config import AnyConfig
from flows.stages.checks import prepare_stages
from tasks.credentials import settings_for
from tasks.prices import Prices, read_prices


@dataclass(frozen=True, slots=True)
class Terms:
    """What the reader says of money, of time, and of how long completions are."""

    prices: Prices | None
    gpu: Gpu | None
    typical_tokens: float | None


def terms_of(prices: Path | None, gpu: str | None, completion_tokens: float | None, config: AnyConfig) -> Terms:
    """What the command line says; the price file may also be the budget's.

    Raises:
        UsageError: the price file cannot be used, or the GPU is not known.
    """
    file = prices or config.budget.prices
    try:
        return Terms(read_prices(file) if file else None, gpus.gpu(gpu) if gpu else None, completion_tokens)
    except ValueError as error:
        raise UsageError(str(error)) from error


@contextmanager
def endpoint_for(configs: Sequence[AnyConfig], *, embedded: bool | None, say: Say) -> Iterator[None]:
    """Whitney as the configurations find it: what the environment names, or a gateway for as long as it takes."""
    with ExitStack() as stack:
        if any(config.credentials_block for config in configs):
            stack.enter_context(prefect_api(say))  # the block is on a Prefect server
        if served := [served_for(config) for config in configs if config.credentials_block is None]:
            models = list(dict.fromkeys(model for names, _ in served for model in names))
            stack.enter_context(endpoint(models, served[0][1], embedded=embedded, say=say))
        yield


async def plan_of(algorithm: str, config: AnyConfig, terms: Terms) -> Plan:
    """The plan, with examples and scored answers; of a pipeline that of every stage, and their sum.

    Raises:
        ConfigError, DataError, RenderingError, ModelError, WhitneyError: as for `flows.checks.prepare.prepare`.
    """
    keys = [(await asyncio.to_thread(settings_for, config.credentials_block)).api_key]
    if isinstance(config, PipelineConfig):
        prepared = await prepare_stages(config, skipped=())
    else:
        client, found = await prepare(algorithm, config)
        await client.aclose()
        prepared = {algorithm: found}
    plans = {
        name: await plan_in_full(
            one, prices=terms.prices, gpu=terms.gpu, typical_tokens=terms.typical_tokens, keys=keys
        )
        for name, one in prepared.items()
    }
    return in_all(plans) if isinstance(config, PipelineConfig) else plans[algorithm]
