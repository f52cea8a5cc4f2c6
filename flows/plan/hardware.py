"""The GPUs that a plan's time is reckoned on."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.gpus import Gpu
from algorithms.spans import Span
from tasks.prices import UTILIZATION


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs that time is reckoned on."""

    gpu: Gpu
    count: int = 1
    utilization: float = UTILIZATION

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.count} × {self.gpu.name}"

    @property
    def memory(self) -> float:
        """Bytes, of all."""
        return self.count * self.gpu.memory

    def seconds(self, flops: Span) -> Span:
        """Time for so many floating point operations."""
        return flops * (self.gpu.seconds(1, utilization=self.utilization) / self.count)
