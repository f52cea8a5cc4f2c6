"""What the gateway asks of whatever executes its operations.

The gateway owns HTTP, order, exactly-once and billing; a provider owns weights. The seam between them is `execute`:
a batch of work that may run together, one outcome for each, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from whitney.types import CapabilityRow, Usage, WireErrorDetail


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything a provider needs to hold a run's weights.

    `initial` is a state file (`*.safetensors`) or a PEFT adapter archive (`*.tar.gz`); `with_optimizer` says whether
    the optimizer in a state file is taken too. `reduction` emulates a backend whose losses are means.
    """

    run_id: str
    model: str
    role: str
    rank: int
    alpha: float
    seed: int
    initial: Path | None = None
    with_optimizer: bool = True
    reduction: str = "sum"


@dataclass(frozen=True, slots=True)
class Work:
    """One operation to execute. `payload` has passed the wire's validation and is complete: every default is in it.

    `sampler_id` names the snapshot to read (`sample`, `logprobs`) or to create (`save_weights_for_sampler`).
    `output` is the file to write (`save_state`, `export_lora`): complete and on disk before the outcome is returned.
    """

    run_id: str
    kind: str
    payload: dict[str, Any]
    sampler_id: str | None = None
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one work item: a result, or an error that fails the run."""

    result: dict[str, Any] | None = None
    error: WireErrorDetail | None = None
    usage: Usage = field(default_factory=Usage)


class ProviderLostError(Exception):
    """The provider's process is gone; every run that lived in it is lost. The gateway fails those runs."""


class Provider(Protocol):
    """An executor of operations. Calls to `execute` never overlap: the gateway has one scheduler."""

    @property
    def batches_samplers(self) -> bool:
        """Whether neighbouring sampler operations on one snapshot may be handed over together."""
        ...

    async def start(self) -> None:
        """Load what is needed. Raises if the provider cannot serve."""
        ...

    async def stop(self) -> None:
        """Release everything; idempotent."""
        ...

    def capabilities(self) -> list[CapabilityRow]:
        """One row per model, `provider` = "local"; the gateway renames rows when it emulates."""
        ...

    async def create_run(self, spec: RunSpec) -> None:
        """Allocate a run's weights. Raises ValueError with a sentence for the user when `spec` cannot be met."""
        ...

    async def execute(self, batch: Sequence[Work]) -> list[Outcome]:
        """Execute a batch: one item of any kind, or several sampler items of one kind on one snapshot.

        Raises:
            ProviderLostError: the process that held the weights is gone.
        """
        ...

    async def release_run(self, run_id: str) -> None:
        """Forget a run and its snapshots; idempotent."""
        ...
