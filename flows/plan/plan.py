"""What a run will cost before it begins: operations, tokens, FLOPs, memory, time and money. It allocates nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import SecretStr

from flows.checks.prepared import Prepared
from flows.counts.lengths import Lengths, lengths
from flows.counts.run import spans_of_cycle, spans_of_run
from flows.counts.token_spans import tokens_of
from flows.plan.assumptions import assumed
from flows.plan.bill import Bill
from flows.plan.gold import gold
from flows.plan.gpu_fit import Fit, fit
from flows.plan.limits import budget_warnings
from flows.plan.models import Models, all_of, models_of
from flows.plan.notes import formula_notes, notes, once
from flows.plan.rates import Rates
from flows.plan.record import Plan
from flows.plan.samples import samples
from flows.plan.terms import Terms

__all__ = ["Plan", "Terms", "plan_in_full", "plan_of_run"]

NOTHING_GIVEN = Terms()
ANOTHER_MACHINE = "The run's own engine works on this machine's CPU: how long that takes is not planned."


async def plan_of_run(prepared: Prepared, terms: Terms = NOTHING_GIVEN) -> Plan:
    """The plan of a run whose inputs are checked.

    Args:
        prepared: the inputs, as `prepare` has found them.
        terms: what it is reckoned by beside them.

    Raises:
        ConfigError: the completions' typical length is out of range.
    """
    return await asyncio.to_thread(_plan, prepared, terms)  # prompts are tokenized: seconds, where there are many


async def plan_in_full(prepared: Prepared, terms: Terms = NOTHING_GIVEN, keys: Sequence[SecretStr] = ()) -> Plan:
    """The same with examples as the model meets them, and what the rewards make of the right answers.

    `keys` are taken out of what a reward function says.
    """
    plan, scored = await plan_of_run(prepared, terms), await gold(prepared, keys)
    warnings = [*(scored.warnings if scored else []), *plan.warnings]
    return replace(plan, samples=samples(prepared), gold=scored, warnings=warnings)


def _plan(prepared: Prepared, terms: Terms) -> Plan:
    algorithm, config = prepared.algorithm, prepared.config
    length, rates = lengths(prepared, terms.completion), Rates(terms)
    models, unknown = _models_of(prepared, terms)
    tokens, cycles = tokens_of(prepared, length)
    held = models.memory(prepared, length) if models else {}
    fitting = _fitting(prepared, models, length, rates)
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
        cost_parts=whole.cost_parts,
        currency=rates.currency,
        cycles=config.cycles,
        save_every=config.save_every,
        once=once(prepared),
        per_cycle=mean,
        models=held,
        assumptions=assumed(prepared, terms, length, rates.hardware),
        warnings=[
            *prepared.warnings(),
            *budget_warnings(config.budget, whole.limited, rates.currency),
            *unknown,
            *(one.told for one in fitting if not one.fits),
            *rates.warnings(whole),
        ],
        notes=list(_notes(prepared, models, fitting, whole, rates)),
    )


def _models_of(prepared: Prepared, terms: Terms) -> tuple[Models | None, list[str]]:
    """The models; or what to say where they are of unknown sizes."""
    try:
        return models_of(prepared, terms.sizes), []
    except ValueError as error:
        return None, [f"No FLOPs and no memory: {error}."]


def _fitting(prepared: Prepared, models: Models | None, length: Lengths, rates: Rates) -> list[Fit]:
    if models is None:
        return []
    held = all_of(models.gpu_memory(prepared, length))
    return [fit(held, rates.hardware, here=models.own_engine(prepared))]


def _notes(
    prepared: Prepared, models: Models | None, fitting: Sequence[Fit], whole: Bill, rates: Rates
) -> Iterator[str]:
    """How the numbers are reckoned, and what they leave out."""
    own = models is not None and models.own_engine(prepared)
    yield from notes(prepared, whole.operations)
    if models:
        yield from models.read()
        yield from formula_notes(own_engine=own)
    yield from (one.told for one in fitting if one.fits)
    yield from rates.notes(whole)
    if own and rates.hardware:
        yield ANOTHER_MACHINE
