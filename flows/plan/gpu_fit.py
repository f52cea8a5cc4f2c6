"""Whether what a run holds in memory fits the GPU that it is reckoned on."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.gpus import gpus
from algorithms.memory import LORA_BYTES, Memory
from flows.plan.hardware import Hardware

RECKONED = f"with weights in bfloat16 and {LORA_BYTES / 1e6:.0f} MB for each adapter, tinker-nomics's round figure"


@dataclass(frozen=True, slots=True)
class Fit:
    """A sentence, and whether it speaks against the run."""

    told: str
    fits: bool


def fit(held: Memory, hardware: Hardware | None, *, here: bool) -> Fit:
    """Of GPUs that are named, whether they hold all models at once; else which kind does.

    Args:
        held: what a run holds on a GPU.
        hardware: those that are named.
        here: whether it runs on this machine's CPU, so that the GPU is a thought.
    """
    needed, verb = _gb(held.total), "would take" if here else "takes"
    if hardware is not None:
        fits = held.total <= hardware.memory
        of_which = f"{needed} of the {_gb(hardware.memory)} of {hardware.name}"
        told = f"On a GPU it {verb} {of_which}" if fits else f"It does not fit: it {verb} {of_which}"
        return Fit(f"{told}, {RECKONED}.", fits or here)
    large = [one for one in gpus().values() if one.memory >= held.total]
    if not large:
        return Fit(f"On a GPU it {verb} {needed}, which no single one of algorithms/gpus.toml holds, {RECKONED}.", True)
    smallest = min(large, key=lambda one: one.memory)
    return Fit(f"On a GPU it {verb} {needed}: the smallest that holds it is the {smallest.name}, {RECKONED}.", True)


def _gb(value: float) -> str:
    return f"{value / 1e9:,.3g} GB"
