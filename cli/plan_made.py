"""How `whitney plan` comes to its plans: the reader's prices, an endpoint to ask, everything that a run checks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from algorithms import gpus
from algorithms.gpus import Gpu
from algorithms.model_specs import ModelSpec
from cli.endpoint import endpoint
from cli.failures import UsageError
from cli.plan_options import Reckoning
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
    """A `Reckoning`, read: money, time, how long completions are, the sizes of models."""

    prices: Prices | None
    gpu: Gpu | None
    typical_tokens: float | None
    sizes: Mapping[str, ModelSpec]


def terms_of(said: Reckoning, configs: Sequence[AnyConfig]) -> list[Terms]:
    """What the command line says, for each configuration; the price file may also be its budget's.

    Raises:
        UsageError: a price file or a model's config.json cannot be used, or the GPU is not known.
    """
    sizes = said.sizes(configs)
    try:
        gpu = gpus.gpu(said.gpu) if said.gpu else None
        files = [said.prices or config.budget.prices for config in configs]
        return [Terms(read_prices(file) if file else None, gpu, said.completion_tokens, sizes) for file in files]
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
            one,
            prices=terms.prices,
            gpu=terms.gpu,
            typical_tokens=terms.typical_tokens,
            sizes=terms.sizes,
            keys=keys,
        )
        for name, one in prepared.items()
    }
    return in_all(plans) if isinstance(config, PipelineConfig) else plans[algorithm]
