"""How much of a run's data is sent, which is what its operations are counted by: see `fitting`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from flows.config import FlowConfig


class InCycle(NamedTuple):
    """Of one cycle: prompts that are drawn from, or examples that are given; how many of them can be trained on."""

    drawn: int
    used: int


class Heldout(NamedTuple):
    """Of one measurement: what is held out; prompts that are drawn from; examples or pairs whose replies are read."""

    examples: int
    prompts: int
    replies: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What some cycles send, and each measurement.

    Args:
        cycles: how many cycles send so much.
        heldout: of a measurement.
        unchanged: snapshots that are spared, since no step was taken since the one before.
    """

    cycles: Counter[InCycle]
    heldout: Heldout
    unchanged: int = 0


def everything(config: FlowConfig, heldout: int) -> Sent:
    """Of a run whose data all fit."""
    size = batch_of(config)
    return Sent(Counter({InCycle(size, size): config.cycles}), Heldout(heldout, heldout, heldout))


def batch_of(config: FlowConfig) -> int:
    """Examples of a cycle."""
    size: int = getattr(config, "groups_per_cycle", 0) or getattr(config, "batch_size", 0)
    return size
