"""What a run is created from."""

from __future__ import annotations

from dataclasses import dataclass

from whitney.types import CreateRun, Initial, LoraConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a run is created from: model, adapter shape, and the weights it starts with (default: the base model's)."""

    provider: str
    model: str
    rank: int
    alpha: float
    seed: int
    role: str = "policy"
    state_id: str | None = None
    artifact_id: str | None = None
    with_optimizer: bool = False

    def request(self, create_key: str) -> CreateRun:
        """The body of POST …/runs."""
        weights = self.state_id or self.artifact_id
        return CreateRun.model_validate(
            {
                "create_key": create_key,
                "provider": self.provider,
                "model": self.model,
                "role": self.role,
                "lora": LoraConfig(rank=self.rank, alpha=self.alpha, seed=self.seed),
                "initial": Initial(state_id=self.state_id, artifact_id=self.artifact_id) if weights else None,
                "with_optimizer": self.with_optimizer,
            }
        )
