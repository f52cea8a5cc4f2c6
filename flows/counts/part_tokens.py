"""The tokens that a part of a run needs so as to come to its end: a block of cycles, a measurement.

Two amounts each, and both have to fit. What it comes to, as far as that is known. And what a budget counts while its
completions are drawn: all at once, each at its longest until it is there. Not what the whole part may come to at most:
where completions may be many times as long as they are, a run would end with most of its budget left.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from flows.checks.prepared import Prepared
from flows.counts.draws import draws_of
from flows.counts.example import ExampleTokens
from flows.counts.fitting import sent_in
from flows.counts.ledger_tokens import NOTHING, Tokens, total
from flows.counts.lengths import Lengths, lengths
from flows.counts.parts import EXPORT, least_useful, planned_measurement
from flows.counts.prompts import Case
from flows.counts.sent import Sent
from flows.counts.token_spans import at_least
from flows.counts.tokens import drawn_in_cycle, of_cycles, of_measurement


class Need(NamedTuple):
    """Of a part of a run.

    Args:
        likely: what it comes to.
        drawing: what it has come to when the last completions are drawn, with these at their longest.
    """

    likely: Tokens
    drawing: Tokens


def block_tokens(prepared: Prepared, cycles: range, *, before: Tokens | None = None) -> Need:
    """A block of cycles, numbered from 0.

    Where the plan leaves it open, it is taken to go as the cycles `before` it have: so many tokens in the mean cycle.
    Without any, to be as cheap as it can be.
    """
    examples, length = ExampleTokens(prepared), lengths(prepared)
    least = _cycles(examples, cycles, length, at_most=False)
    likely = least
    if before is not None and least != _cycles(examples, cycles, length, at_most=True):
        likely = least.at_least(before * len(cycles))
    drawn = drawn_in_cycle(examples, cycles[-1], completion_tokens=length.completion.most)
    return Need(likely, likely * ((len(cycles) - 1) / len(cycles)) + drawn)


def measurement_tokens(prepared: Prepared) -> Need:
    """A measurement; nothing where none is made."""
    if not prepared.config.evaluation.enabled:
        return Need(NOTHING, NOTHING)
    examples, length = ExampleTokens(prepared), lengths(prepared)
    least = of_measurement(examples, completion_tokens=length.completion.least)
    drawn = (examples.measured(one, length.completion.most, at_once=True) for one in prepared.heldout)
    return Need(least, total(drawn))


def least_operations(prepared: Prepared) -> Counter[str]:
    """The least that leaves an adapter, by what is sent of the data."""
    return least_useful(prepared.algorithm, prepared.config, len(prepared.heldout), _sent_first(prepared))


def least_needs(prepared: Prepared) -> list[tuple[Counter[str], Tokens]]:
    """Operations and tokens that all have to fit so that a run leaves an adapter: measured, a block, the export."""
    config = prepared.config
    measured = planned_measurement(config, _sent_first(prepared).heldout) + Counter({EXPORT: 1})
    whole = least_operations(prepared)
    before, block = measurement_tokens(prepared), block_tokens(prepared, range(min(config.save_every, config.cycles)))
    return [(measured, before.drawing), *((whole, before.likely + tokens) for tokens in block)]


def _cycles(examples: ExampleTokens, cycles: range, length: Lengths, *, at_most: bool) -> Tokens:
    case: Case = "most" if at_most else "least"
    tokens = length.completion.most if at_most else length.completion.least
    draws = draws_of(examples.prepared.config, case)
    found = of_cycles(examples, cycles, completion_tokens=tokens, draws=draws, case=case)
    return found if at_most else at_least(examples.prepared, found)


def _sent_first(prepared: Prepared) -> Sent:
    """In the first block, and in a measurement."""
    first = range(min(prepared.config.save_every, prepared.config.cycles))
    return sent_in(prepared, first, measured=False, drawn_once=True)
