"""One optimizer step: forward_backward and optim_step posted back to back, save_state right behind at a block's end."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from algorithms import (
    Datum,
    forward_backward_payload,
    kl_estimate,
    sampled_logprobs,
    trained_logprobs,
    trained_tokens,
)
from flows.attempt import Attempt
from flows.outcome import Block, BlockOutcome, Row
from tasks.events import emit
from tasks.operations import forward_backward, in_order, optim_step, save_state
from tasks.policy import Policy

# A metric must not overflow where log-probs are absurd; e^30 says so well enough.
LARGEST_LOG_RATIO = 30.0


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
    optimizer = attempt.optimizer(cycle)
    posted = []
    if data:
        payload = forward_backward_payload(list(data), loss_function, loss_config)
        posted += [forward_backward(policy, payload), optim_step(policy, optimizer)]
    if save:
        posted.append(save_state(policy))
    answers = await in_order(*posted)
    if save:
        policy.state_id = answers[-1].result["state_id"]
    row: Row = {"datums": len(data), "learning_rate": optimizer["learning_rate"] if data else 0.0}
    if data:
        backward, step = answers[0].result, answers[1].result
        row |= _reported({**backward["metrics"], **step["metrics"]})
        row |= _agreement(data, backward["loss_outputs"])
    return row


def _reported(metrics: dict[str, Any]) -> Row:
    """The provider's own numbers: those every provider means alike by their names, any other as `provider/<name>`."""
    alike = {"loss", "grad_norm", "clip_fraction"}
    return {
        name if name in alike else f"provider/{name}": float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and name != "learning_rate"
    }


def _agreement(data: Sequence[Datum], loss_outputs: Sequence[dict[str, Any]]) -> Row:
    """How the trainer's log-probs stand to the sampler's, from the wire's own numbers: the same for every provider."""
    trained = trained_logprobs(data, loss_outputs)
    tokens = sum(trained_tokens(datum) for datum in data)
    if "logprobs" not in data[0]["loss_inputs"]:
        return {"loss_per_token": -math.fsum(trained) / tokens}
    sampled = sampled_logprobs(data)
    ratios = [math.exp(min(new - old, LARGEST_LOG_RATIO)) for new, old in zip(trained, sampled, strict=True)]
    kl = kl_estimate(sampled, trained)
    return {
        "kl_sampler_trainer": kl.k1,
        "kl_sampler_trainer_k3": kl.k3,
        "ratio_mean": math.fsum(ratios) / len(ratios),
        "ratio_max": max(ratios),
        "entropy": -math.fsum(sampled) / len(sampled),
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
