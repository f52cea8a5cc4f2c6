"""What a plan is reckoned by beside the configuration, and what of it a reader must know to judge the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from algorithms.gpus import Gpu
from flows.counts.lengths import Source, Typical
from flows.plan.model_size import Sizes
from tasks.prices import Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is given.

    Args:
        prices: of the reader's price file; without it nothing is priced.
        price_file: where they are from.
        gpu: what time is reckoned on; default: the price file's.
        completion: how long a typical sampled completion is; default: half of `sampling.max_tokens`.
        sizes: of models, by name; default: those that are known.
    """

    prices: Prices | None = None
    price_file: Path | None = None
    gpu: Gpu | None = None
    completion: Typical | None = None
    sizes: Sizes = field(default_factory=dict)


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
