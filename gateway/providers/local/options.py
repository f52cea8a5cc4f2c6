"""How an engine is set up; the same record on both sides of the pipe."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

_MOST_THREADS = 16  # a 135M model gives more cores nothing to do


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine's settings.

    `deterministic`: an operation's result depends on its own inputs alone, bit for bit (one thread unless a number is
    given, no batching across operations). `micro_batch_tokens`: unique tokens that pass through the network at one
    time, at about 0.8 MB each in training. `cache_bytes`: keys and values while sampling. `hot_adapters`: runs whose
    merged weights are kept. `snapshots_in_memory`, `snapshots_per_run`: see `memory.Snapshots`. `dppo_variant`: the
    distance by which the loss dppo masks.
    """

    models: tuple[str, ...] = ("smollm2-135m-instruct", "tiny")
    threads: int | Literal["auto"] = "auto"
    deterministic: bool = False
    max_rank: int = 256
    micro_batch_tokens: int = 1024
    cache_bytes: int = 512 * 2**20
    hot_adapters: int = 2
    snapshots_in_memory: int = 4
    snapshots_per_run: int = 64
    dppo_variant: Literal["binary_tv", "binary_kl"] = "binary_tv"

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models is empty: name at least one model to serve")
        if self.threads != "auto" and self.threads < 1:
            raise ValueError(f"threads is {self.threads}, it must be 'auto' or at least 1")
        for name in (
            "max_rank",
            "micro_batch_tokens",
            "cache_bytes",
            "hot_adapters",
            "snapshots_in_memory",
            "snapshots_per_run",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")

    @property
    def thread_count(self) -> int:
        """Threads the engine computes with; `auto`: one a usable core, whoever else is busy.

        Waiting passively (see `provider`), several threads beside busy neighbours are 0.75 to 1.3 times as fast as one,
        and which it is changes from second to second: choosing by the clock would win little, and lose much of what
        the threads are worth on a quiet machine whenever it chose wrongly.
        """
        if self.threads != "auto":
            return self.threads
        return 1 if self.deterministic else min(_usable_cores(), _MOST_THREADS)


def _usable_cores() -> int:
    """Cores this process may run on; only Linux knows of a limit below the machine's own number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
