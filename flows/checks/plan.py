"""What a run will cost before it begins: operations, tokens, FLOPs, memory, time and money. It allocates nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from pydantic import SecretStr

from algorithms.gpus import Gpu
from flows.checks.model_size import Sizes
from flows.checks.plan_gold import gold
from flows.checks.plan_lengths import lengths
from flows.checks.plan_models import Models, all_of, models_of
from flows.checks.plan_notes import budget_notes, formula_notes, notes
from flows.checks.plan_rates import Rates
from flows.checks.plan_record import Plan
from flows.checks.plan_samples import samples
from flows.checks.plan_tokens import tokens_of
from flows.checks.planned_run import spans_of_cycle, spans_of_run
from flows.checks.prepared import Prepared
from tasks.prices import Prices

__all__ = ["Plan", "plan_in_full", "plan_of_run"]

KNOWN: Sizes = MappingProxyType({})
"""No sizes given: those that are known."""


async def plan_of_run(
    prepared: Prepared,
    *,
    prices: Prices | None = None,
    gpu: Gpu | None = None,
    typical_tokens: float | None = None,
    sizes: Sizes = KNOWN,
) -> Plan:
    """The plan of a run whose inputs are checked.

    Args:
        prepared: the inputs, as `prepare` has found them.
        prices: the reader's price file; without it nothing is priced.
        gpu: what time is reckoned on; default: the price file's.
        typical_tokens: of a completion; default: as long as the data's answers, else half of `sampling.max_tokens`.
        sizes: of models, by name; default: those that are known.

    Raises:
        ConfigError: `typical_tokens` is out of range.
    """
    # Prompts are tokenized, which takes seconds where there are many.
    return await asyncio.to_thread(_plan, prepared, Rates.of(prices, gpu), typical_tokens, sizes)


async def plan_in_full(
    prepared: Prepared,
    *,
    prices: Prices | None = None,
    gpu: Gpu | None = None,
    typical_tokens: float | None = None,
    sizes: Sizes = KNOWN,
    keys: Sequence[SecretStr] = (),
) -> Plan:
    """The same with examples as the model meets them, and what the rewards make of the right answers.

    `keys` are taken out of what a reward function says.
    """
    plan = await plan_of_run(prepared, prices=prices, gpu=gpu, typical_tokens=typical_tokens, sizes=sizes)
    return replace(plan, samples=samples(prepared), gold=await gold(prepared, keys))


def _plan(prepared: Prepared, rates: Rates, typical_tokens: float | None, sizes: Sizes) -> Plan:
    algorithm, config, length = prepared.algorithm, prepared.config, lengths(prepared, typical_tokens)
    said = [*prepared.warnings(), *notes(prepared, length)]
    models: Models | None = None
    try:
        models = models_of(prepared, sizes)
        said += models.read()
        said += formula_notes(rates.told, own_engine=models.own_engine(prepared))
    except ValueError as error:
        said.append(f"No FLOPs and no memory: {error}.")
    tokens, cycles = tokens_of(prepared, length)
    held = models.memory(prepared, length) if models else {}
    whole = rates.bill(
        spans_of_run(prepared),
        tokens.by_kind,
        models.flops(tokens, config, length) if models else None,
    )
    mean = rates.bill(
        spans_of_cycle(prepared),
        {kind: span / config.cycles for kind, span in cycles.by_kind.items()},
        models.flops(cycles, config, length) / config.cycles if models else None,
    )
    return Plan(
        algorithm=algorithm,
        title=f"{algorithm} on {config.model.provider}/{config.model.name}, LoRA rank {config.lora.rank}",
        operations=whole.operations,
        tokens=whole.tokens,
        flops=whole.flops,
        memory=all_of(held) if held else None,
        seconds=whole.seconds,
        cost=whole.cost,
        currency=rates.currency,
        cycles=config.cycles,
        per_cycle=mean,
        models=held,
        notes=[*said, *budget_notes(config.budget, whole.limited)],
    )
