"""What a plan is reckoned by beside the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from algorithms.gpus import Gpu
from flows.counts.lengths import Typical
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
