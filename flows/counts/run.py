"""The operations of a run whose inputs are checked, by what is sent of its data."""

from __future__ import annotations

from collections import Counter

from algorithms.spans import Spans
from flows.checks.prepared import Prepared
from flows.counts.end import fewest_cycles
from flows.counts.fitting import sent_in
from flows.counts.operations import planned_operations
from flows.counts.spans import cycle_spans, operation_spans


def spans_of_run(prepared: Prepared) -> Spans:
    """The operations of a whole run."""
    shortest = sent_in(prepared, range(fewest_cycles(prepared.config)), drawn_once=True)
    return operation_spans(
        prepared.algorithm, prepared.config, len(prepared.heldout), sent_in(prepared), shortest=shortest
    )


def most_operations(prepared: Prepared) -> Counter[str]:
    """The operations of a whole run at most."""
    return planned_operations(prepared.algorithm, prepared.config, len(prepared.heldout), sent_in(prepared))


def spans_of_cycle(prepared: Prepared) -> Spans:
    """The operations of the mean cycle."""
    sent, least = sent_in(prepared, measured=False), sent_in(prepared, measured=False, drawn_once=True)
    return cycle_spans(prepared.algorithm, prepared.config, sent, least=least)
