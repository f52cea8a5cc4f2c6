"""What of a run's data is sent. An example that leaves no room for a reply, or is too long with its own, is not.

The data's order is seeded, so it is known which cycles have nothing to send, and how often weights are looked at that
nothing has changed since: these need no new snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from algorithms import ALGORITHMS
from flows.checks.prepared import Prepared
from flows.config import DapoConfig, DpoConfig, OpdConfig, OpsdConfig, SftConfig, TttConfig
from flows.counts.example import ExampleTokens
from flows.counts.prompts import frozen_prompt
from flows.counts.sent import Heldout, InCycle, Sent, batch_of
from tasks.examples import Example


def sent_in(
    prepared: Prepared, cycles: range | None = None, *, measured: bool = True, drawn_once: bool = False
) -> Sent:
    """What a run sends.

    Args:
        prepared: its checked inputs.
        cycles: those that are asked about, numbered from 0; default: all.
        measured: whether weights are measured between the cycles, and after them.
        drawn_once: DAPO draws nothing again. Otherwise others take the place of what is not sent, so that all is.
    """
    config = prepared.config
    cycles = range(config.cycles) if cycles is None else cycles
    examples = ExampleTokens(prepared)
    heldout = _of_heldout(examples) if config.evaluation.enabled else Heldout(0, 0, 0)
    size = batch_of(config)
    fit = {id(one): _fits(examples, one) for one in _used(prepared, cycles, size)}
    if all(all(one) for one in fit.values()) or (isinstance(config, DapoConfig) and not drawn_once):
        return Sent(Counter({InCycle(size, size): len(cycles)}), heldout)
    per_cycle = [_in_cycle([fit[id(one)] for one in prepared.batch(cycle, size)]) for cycle in cycles]
    steps = [bool(one.used) for one in per_cycle]
    return Sent(Counter(per_cycle), heldout, _unchanged(prepared, steps, measured=measured and heldout.examples > 0))


def _in_cycle(examples: Sequence[tuple[bool, bool]]) -> InCycle:
    return InCycle(sum(drawn for drawn, _ in examples), sum(used for _, used in examples))


def _used(prepared: Prepared, cycles: range, size: int) -> Iterator[Example]:
    """Every example of these cycles, at least once. TTT's problem is looked at before anything begins."""
    if isinstance(prepared.config, TttConfig):
        return
    if len(cycles) * size >= len(prepared.data.train):
        yield from prepared.data.train
        return
    for cycle in cycles:
        yield from prepared.batch(cycle, size)


def _fits(examples: ExampleTokens, example: Example) -> tuple[bool, bool]:
    """Whether it is sent, and whether it can be trained on: a teacher may have no room for what the student drew."""
    prepared = examples.prepared
    if isinstance(prepared.config, SftConfig | DpoConfig):
        fits = examples.inputs(example) > 0
        return fits, fits
    prompt = examples.prompt(example)
    drawn = prompt < prepared.context_tokens
    if not drawn or not isinstance(prepared.config, OpdConfig | OpsdConfig):
        return drawn, drawn
    before = frozen_prompt(prepared, example, prompt, 0, "least")
    return True, before is not None and before < prepared.teacher_context_tokens


def _of_heldout(examples: ExampleTokens) -> Heldout:
    prepared, rows = examples.prepared, examples.prepared.heldout
    prompts = sum(examples.prompt(one) < prepared.context_tokens for one in rows) if prepared.evaluation_rewards else 0
    given = isinstance(prepared.config, SftConfig | DpoConfig)
    return Heldout(len(rows), prompts, sum(examples.inputs(one) > 0 for one in rows) if given else 0)


def _unchanged(prepared: Prepared, steps: Sequence[bool], *, measured: bool) -> int:
    """Snapshots are taken where weights are looked at that a step has changed since the last look."""
    config = prepared.config
    measured = measured and bool(prepared.evaluation_rewards)
    if ALGORITHMS[prepared.algorithm].rollouts:
        return sum(not step for step in (steps if measured else steps[:-1]))
    if not measured:
        return 0
    every = config.evaluation.every or len(steps)
    return sum(not any(steps[start : start + every]) for start in range(0, len(steps), every))
