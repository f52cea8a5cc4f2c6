"""One optimizer step: forward_backward and optim_step posted back to back, save_state right behind at a block's end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from prefect.logging import get_run_logger

from algorithms import (
    Datum,
    adamw_optimizer,
    forward_backward_payload,
    learning_rate,
    mean_nll,
    sampler_agreement,
)
from flows.attempt import Attempt
from flows.config import FlowConfig
from flows.outcome import Block, BlockOutcome, Row
from tasks.events import emit
from tasks.operations import forward_backward, in_order, optim_step, save_state
from tasks.policy import Policy

# What every provider means alike by these names; its other numbers are kept as `provider/<name>`.
COMMON_METRICS = {"loss", "grad_norm", "clip_fraction"}


# What a cycle's line in the flow run's log says; everything else is in metrics.jsonl.
LOGGED = ("reward_mean", "zero_signal_fraction", "loss", "loss_per_token", "grad_norm", "seconds/cycle")


async def train_step(
    attempt: Attempt,
    policy: Policy,
    cycle: int,
    data: Sequence[Datum],
    *,
    loss_function: str,
    loss_config: dict[str, float] | None = None,
    save: bool,
) -> Row:
    """Train on a cycle's datums, and save when the block ends here; the metrics of the step.

    Without a datum (every group had equal rewards, say) nothing is sent: the weights stay, the cycle still counts.
    """
    optimizer = optimizer_of(attempt.config, cycle)
    posted = []
    if data:
        payload = forward_backward_payload(list(data), loss_function, loss_config)
        posted += [forward_backward(policy, payload), optim_step(policy, optimizer)]
    if save:
        posted.append(save_state(policy))
    answers = await in_order(*posted)
    if save:
        policy.state_id = answers[-1].result["state_id"]
    if not data:
        return {"datums": 0, "learning_rate": 0.0}
    backward, step = answers[0].result, answers[1].result
    sampled = "logprobs" in data[0]["loss_inputs"]
    outputs = backward["loss_outputs"]
    return {
        "datums": len(data),
        "learning_rate": optimizer["learning_rate"],
        **_reported({**backward["metrics"], **step["metrics"]}),
        **(sampler_agreement(data, outputs) if sampled else {"loss_per_token": mean_nll(data, outputs)}),
    }


def optimizer_of(config: FlowConfig, cycle: int) -> dict[str, Any]:
    """The `optim_step` optimizer of a cycle, with the schedule's learning rate."""
    section = config.optimizer
    rate = learning_rate(
        cycle,
        config.cycles,
        section.learning_rate,
        section.schedule,
        warmup_steps=min(section.warmup_cycles, config.cycles),
        final_fraction=section.final_fraction,
    )
    return adamw_optimizer(
        learning_rate=rate,
        beta1=section.beta1,
        beta2=section.beta2,
        eps=section.eps,
        weight_decay=section.weight_decay,
        grad_clip_norm=section.grad_clip_norm,
    )


def _reported(metrics: dict[str, Any]) -> Row:
    return {
        name if name in COMMON_METRICS else f"provider/{name}": float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and name != "learning_rate"
    }


class BlockRecorder:
    """Collects the rows of a block while it runs, and makes its outcome."""

    __slots__ = ("_attempt", "_began", "_block", "_policy", "_rows", "_start_from")

    def __init__(self, attempt: Attempt, policy: Policy, block: Block) -> None:
        self._attempt = attempt
        self._policy = policy
        self._block = block
        self._start_from = policy.state_id
        self._rows: list[Row] = []
        self._began = time.monotonic()

    def ends_at(self, cycle: int) -> bool:
        """Whether the block's state is saved with this cycle."""
        return cycle == self._block.numbers[-1]

    def record(self, cycle: int, *parts: Row) -> None:
        """Close a cycle: its metrics, what it cost, how long it took."""
        now = time.monotonic()
        row: Row = {"cycle": cycle}
        for part in parts:
            row |= part
        row |= self._policy.take_meter().flat() | {"seconds/cycle": round(now - self._began, 3)}
        self._began = now
        self._rows.append(row)
        shown = ", ".join(f"{key} {row[key]:.4g}" for key in LOGGED if key in row)
        get_run_logger().info("cycle %d of %d: %s", cycle + 1, self._attempt.config.cycles, shown)
        emit("cycle", cycle=cycle, cycles=self._attempt.config.cycles, metrics=row)

    def outcome(self) -> BlockOutcome:
        """What the block leaves behind, once its state is saved."""
        assert self._policy.state_id is not None
        return BlockOutcome(
            block=self._block.index,
            cycle=self._block.numbers[-1],
            state_id=self._policy.state_id,
            parent_state_id=self._start_from,
            run_id=self._policy.run_id,
            attempt=self._attempt.scope.attempt,
            rows=self._rows,
        )
