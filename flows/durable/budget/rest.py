"""What the rest of a run needs, counted as its gate will count it: what a person is offered who may raise a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean

from flows.amounts import rounded_up, whole
from flows.checks.prepared import Prepared
from flows.config.budget import KINDS
from flows.counts.fitting import sent_in
from flows.counts.ledger_tokens import NOTHING, Tokens
from flows.counts.operations import planned_measurements
from flows.counts.part_tokens import Need, block_tokens, measurement_tokens
from flows.counts.parts import EXPORT, SAVE, planned_block, planned_measurement
from flows.durable.budget.account import Account
from flows.durable.outcome import Row
from flows.early_end import BudgetReachedError
from whitney.types import Usage

NOT_PLANNED = ("sample", "logprobs", "forward")
"""Kinds that a cycle may ask for more often than is planned: what is drawn again, what a `build_loss` asks for."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Operations, tokens and seconds that are still to come.

    Args:
        operations: by kind, the export included.
        tokens: what they come to, as far as that is known.
        peaks: what they have come to when completions are drawn, these at their longest.
        seconds: at work.
    """

    operations: Counter[str] = field(default_factory=Counter)
    tokens: Tokens = NOTHING
    peaks: tuple[Tokens, ...] = ()
    seconds: float = 0.0

    def then(self, later: Rest) -> Rest:
        """This, and what comes after it."""
        peaks = (*self.peaks, *(self.tokens + peak for peak in later.peaks))
        operations, seconds = self.operations + later.operations, self.seconds + later.seconds
        return Rest(operations, self.tokens + later.tokens, peaks, seconds)


def rest_of(inputs: Prepared, rows: Sequence[Row] = (), measured: Sequence[Mapping[str, float]] = ()) -> Rest:
    """The rest of a run that has trained `rows`, and whose measurements so far have cost `measured`.

    What no plan knows goes on as it did so far: the mean cycle, the mean measurement.
    """
    config, cycles = inputs.config, range(len(rows), inputs.config.cycles)
    measurements = max(planned_measurements(config, len(inputs.heldout)) - len(measured), 0)
    operations = Counter({EXPORT: 1})
    for kind, count in planned_measurement(config, sent_in(inputs, range(0)).heldout).items():
        operations[kind] += measurements * count
    need = Need(NOTHING, NOTHING)
    if cycles:
        block = planned_block(inputs.algorithm, config, len(cycles), sent_in(inputs, cycles))
        block[SAVE] *= ceil(len(cycles) / config.save_every)
        again = {kind: ceil(len(cycles) * mean(rows, f"operations/{kind}")) for kind in NOT_PLANNED}
        operations += block | Counter(again)
        need = block_tokens(inputs, cycles, before=tokens_of(rows) if rows else None)
    one = measurement_tokens(inputs)
    before_last = one.likely.at_least(tokens_of(measured)) * max(measurements - 1, 0)
    tokens = need.likely + one.likely.at_least(tokens_of(measured)) * measurements
    at_last = need.likely + before_last + one.drawing
    peaks = (need.drawing + before_last, *([at_last] if measurements else []))
    return Rest(operations, tokens, peaks, len(cycles) * mean(rows, "seconds/cycle"))


def enough_more(reached: BudgetReachedError, account: Account, rest: Rest) -> float:
    """By how much a limit has to be raised so that the rest fits; of operations and tokens a whole number."""
    kind, limit = KINDS[reached.field], account.limits[reached.field]
    amounts = [_usage(tokens) for tokens in (rest.tokens, *rest.peaks)]
    after = max(account.after(reached.field, rest.operations, one, rest.seconds) for one in amounts)
    more = max(after, reached.used + reached.needed) - limit
    if more <= 0:  # of minutes: nobody knows how long the first block takes
        more = limit
    return whole(more) if kind == "minutes" else rounded_up(kind, more)


def enough(reached: BudgetReachedError, account: Account, rest: Rest) -> float:
    """The limit so raised: what brings a run to its end, as far as that can be told."""
    return round(account.limits[reached.field] + enough_more(reached, account, rest), 12)


def tokens_of(parts: Sequence[Mapping[str, float]]) -> Tokens:
    """Of the mean of some parts of a run, as their metrics have them; nothing of none."""
    return Tokens(*(mean(parts, f"tokens/{name}") for name in ("prefill", "sampled", "trained")))


def _usage(tokens: Tokens) -> Usage:
    return Usage(
        prefill_tokens=ceil(tokens.prefill), sampled_tokens=ceil(tokens.sampled), trained_tokens=ceil(tokens.trained)
    )


def mean(parts: Sequence[Mapping[str, float]], metric: str) -> float:
    """Of a metric; 0 of no parts."""
    return fmean(part.get(metric, 0.0) for part in parts) if parts else 0.0
