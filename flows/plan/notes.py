"""What a reader of a plan must know of it: how it is reckoned, what it leaves out, what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator

from algorithms import ALGORITHMS
from algorithms.resampling_odds import flat_share
from algorithms.spans import Spans
from flows.checks.prepared import Prepared
from flows.config import CustomConfig, DapoConfig
from flows.counts.draws import expected, largest_group
from flows.counts.end import fewest_cycles
from flows.counts.lengths import LOOKED_AT
from flows.counts.operations import planned_measurements
from flows.counts.spans import may_send_nothing, prompts_are_known

FEW = 0.1
"""The share of skipped cycles from which on they are spoken of."""


def samples_anything(prepared: Prepared) -> bool:
    """Whether any completion is drawn: to learn from, or to measure."""
    config, rows = prepared.config, prepared.heldout
    measured = bool(config.evaluation_terms() and config.evaluation.enabled and rows)
    return ALGORITHMS[prepared.algorithm].rollouts or measured


def notes(prepared: Prepared, operations: Spans) -> Iterator[str]:
    """What the numbers of a run are made of, what decides most of its cost first."""
    config, algorithm = prepared.config, prepared.algorithm
    if may_send_nothing(algorithm, config):
        yield "At least: completions of one token, and no cycle with a signal, so no step is taken."
    yield from _tokens(algorithm, operations)
    if isinstance(config, DapoConfig):
        yield from _drawn_again(config)
    if isinstance(config, CustomConfig):
        yield "What your build_loss asks of ctx.client comes on top: it is not known beforehand."
    if not prompts_are_known(config):
        yield "Prompts that hold an earlier attempt are taken to be as long as typical completions make them."
    if config.stop != type(config.stop)():
        yield f"A rule of [stop] may end it after cycle {fewest_cycles(config):,} already: so it stands at least."
    yield from _unsent(prepared)


def once(prepared: Prepared) -> str:
    """What a run has beside its cycles."""
    config, heldout = prepared.config, len(prepared.heldout)
    parts = ["the export"]
    if measurements := planned_measurements(config, heldout):
        parts.insert(0, f"{measurements} measurements of {heldout} held-out examples")
    row = config.needs(ALGORITHMS[prepared.algorithm])
    parts += [f"a snapshot of the {role}" for role in row.extra_runs if row.rollouts and role != "critic"]
    return ", ".join(parts)


def _tokens(algorithm: str, operations: Spans) -> Iterator[str]:
    """Which tokens the ledger counts where: less plain than it looks."""
    if ALGORITHMS[algorithm].rollouts:
        yield "Trained tokens: each completion with its prompt, for both pass through forward_backward."
    if asking := [kind for kind in ("logprobs", "forward") if kind in operations]:
        yield f"Prefill: the prompts that are sampled from, and all that {' and '.join(asking)} reads."


def _drawn_again(config: DapoConfig) -> Iterator[str]:
    """What DAPO's typical numbers take for granted; what becomes of cycles that stay without a signal, if not rare."""
    mean, size = expected(config), largest_group(config)
    yield (
        f"Typically {mean.draws:.2g} groups a cycle are drawn again. That takes the prompts to be evenly spread from "
        f"never solved to always solved: then {flat_share(size):.0%} of groups of {size} have equal rewards."
    )
    left, rounds = 1 - mean.steps, f"a group stays so through all {config.resample.max_rounds} rounds"
    if config.resample.on_exhausted == "skip" and left > FEW:
        yield (
            f"By the same reckoning {left:.0%} of the cycles are skipped, for {rounds}, and take no step. "
            "See resample.max_rounds and on_exhausted."
        )


def formula_notes(*, own_engine: bool) -> Iterator[str]:
    """How FLOPs and memory are reckoned; `own_engine`: it is the gateway's own engine that holds the model."""
    yield (
        "FLOPs: 2P for a token that is read or sampled, 4P + 6P·R/D for one that is trained, since the frozen weights "
        "pass the gradient on; and attention over the context (docs/costs.md)."
    )
    if own_engine:
        yield (
            "Memory: the peak of the engine's process on a CPU, in 32 bits: the base, merged copies of the adapters in "
            "use, and sampling or training, whichever holds more: the other has no part in the peak."
        )
    else:
        yield (
            "Memory: weights in bfloat16; keys and values of a cycle's completions all at once, activations of one "
            "sequence, each at its longest."
        )


def _unsent(prepared: Prepared) -> Iterator[str]:
    """Prompts that fill the context, of those that are looked at."""
    sides = {"training": prepared.data.train, "held-out": prepared.heldout}
    for side, every in sides.items():
        examples = every[:LOOKED_AT]
        full = sum(len(prepared.renderer.prompt_tokens(one)) >= prepared.context_tokens for one in examples)
        if full:
            yield f"{full} of {len(examples)} {side} prompts fill the context: they are not sent, and not counted."
