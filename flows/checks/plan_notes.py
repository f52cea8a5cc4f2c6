"""What a reader of a plan must know of it: how it is reckoned, what it leaves out, what is known of the algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from algorithms import ALGORITHMS
from algorithms.catalogue import profile_of
from algorithms.resampling_odds import flat_share
from algorithms.spans import Span
from flows.checks.plan_lengths import LOOKED_AT, Lengths
from flows.checks.planned_draws import expected
from flows.checks.planned_spans import may_send_nothing, prompts_are_known
from flows.checks.prepared import Prepared
from flows.config import CustomConfig, DapoConfig
from flows.config.budget import OF_THE_RUN, BudgetConfig


def notes(prepared: Prepared, length: Lengths) -> Iterator[str]:
    """The notes of a run, what decides most of its cost first."""
    config, algorithm = prepared.config, prepared.algorithm
    if ALGORITHMS[algorithm].rollouts or (config.evaluation_terms() and config.evaluation.enabled):
        yield f"A completion typically has {length.completion.typical:.3g} tokens: {length.why}."
    if may_send_nothing(algorithm, config):
        yield "At least: completions of one token, and no cycle with a signal, so no step is taken."
    if isinstance(config, DapoConfig):
        yield from _drawn_again(config)
    if isinstance(config, CustomConfig):
        yield "What your build_loss asks of ctx.client comes on top: it is not known beforehand."
    if not prompts_are_known(config):
        yield "Prompts that hold an earlier attempt are taken to be as long as typical completions make them."
    if config.stop != type(config.stop)():
        yield "A rule of [stop] may end it earlier."
    yield from _unsent(prepared)
    if profile := profile_of(ALGORITHMS[algorithm]):
        yield f"{profile.name}: {profile.notes}"


def _drawn_again(config: DapoConfig) -> Iterator[str]:
    """What DAPO's typical numbers take for granted; what becomes of cycles that stay without a signal, if not rare."""
    mean, size = expected(config), max(config.group_size, config.resample_policy().target_group_size)
    yield (
        f"Typically {mean.draws:.2g} groups a cycle are drawn again: of groups of {size}, {flat_share(size):.0%} have "
        "equal rewards where problems are of all difficulties alike."
    )
    left, rounds = 1 - mean.steps, f"a group stays so through all {config.resample.max_rounds} rounds"
    if config.resample.on_exhausted == "skip" and left > FEW:
        yield (
            f"By the same reckoning {left:.0%} of the cycles are skipped, for {rounds}, and take no step. "
            "See resample.max_rounds and on_exhausted."
        )


FEW = 0.1
"""The share of skipped cycles from which on they are spoken of."""


def formula_notes(gpus: str | None, *, own_engine: bool) -> Iterator[str]:
    """How FLOPs, memory and time are reckoned.

    Args:
        gpus: those that time is reckoned on.
        own_engine: whether it is the gateway's own engine that holds the model.
    """
    yield (
        "FLOPs: 2P for a token that is read or sampled, 4P + 6P·R/D for one that is trained, since the frozen weights "
        "pass the gradient on; and attention over the context (docs/costs.md)."
    )
    if own_engine:
        yield (
            "Memory: the peak of the engine's process on a CPU, in 32 bits: the base, merged copies of the adapters in "
            "use, and sampling or training, whichever holds more."
        )
    else:
        yield (
            "Memory: weights in bfloat16; keys and values of a cycle's completions all at once, activations of one "
            "sequence, each at its longest."
        )
    if gpus:
        yield f"Time: FLOPs on {gpus}. Rewards, network and queues come on top."


def budget_notes(budget: BudgetConfig, planned: Mapping[str, Span | None]) -> Iterator[str]:
    """Limits that the plan comes to; `planned` has what they limit, by the limit's name."""
    for name, limit in budget.limits(OF_THE_RUN).items():
        span = planned.get(name)
        if span is not None and span.most > limit:
            verb = "will" if span.typical > limit else "may"
            told = f"{span.typical:,.4g} are typical, {span.most:,.4g} the most"
            yield f"budget.{name} = {limit:g} {verb} end it early: {told}."


def _unsent(prepared: Prepared) -> Iterator[str]:
    """Prompts that fill the context, of those that are looked at."""
    sides = {"training": prepared.data.train, "held-out": prepared.heldout}
    for side, every in sides.items():
        examples = every[:LOOKED_AT]
        full = sum(len(prepared.renderer.prompt_tokens(one)) >= prepared.context_tokens for one in examples)
        if full:
            yield f"{full} of {len(examples)} {side} prompts fill the context and are not sent, so it will cost less."
