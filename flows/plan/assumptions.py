"""What of a plan's terms a reader must know to judge its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from flows.checks.prepared import Prepared
from flows.counts.lengths import Lengths, Source
from flows.plan.hardware import Hardware
from flows.plan.notes import samples_anything
from flows.plan.terms import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What the numbers of a plan take for granted.

    Args:
        completion_tokens: of a typical sampled completion; null where none is sampled.
        completion_tokens_source: where that is from: `half_of_max_tokens`; `option` (--completion-tokens);
            `earlier_run`, the mean of a run of the same configuration; `ignore_eos`, for then all are as long.
        earlier_run: the folder of that run.
        gpu: what time is reckoned on, "1 × h100"; null where no GPU is named.
        utilization: the share of its peak that is taken to be had.
        prices: the price file; null without one.
        currency: the price file's.
    """

    completion_tokens: float | None = None
    completion_tokens_source: Source | None = None
    earlier_run: str | None = None
    gpu: str | None = None
    utilization: float | None = None
    prices: str | None = None
    currency: str | None = None


def assumed(prepared: Prepared, terms: Terms, length: Lengths, hardware: Hardware | None) -> Assumptions:
    """What a plan has taken for granted."""
    typical = length.typical if samples_anything(prepared) else None
    return Assumptions(
        completion_tokens=typical.tokens if typical else None,
        completion_tokens_source=typical.source if typical else None,
        earlier_run=typical.run if typical else None,
        gpu=hardware.name if hardware else None,
        utilization=hardware.utilization if hardware else None,
        prices=str(terms.price_file) if terms.price_file else None,
        currency=terms.prices.currency if terms.prices else None,
    )
