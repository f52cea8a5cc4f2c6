"""One optimizer step: forward_backward and optim_step posted back to back, save_state right behind at a block's end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms import Datum, adamw_optimizer, forward_backward_payload, learning_rate, mean_nll, sampler_agreement
from flows.config import FlowConfig
from flows.durable.cycles import Cycle
from flows.durable.outcome import Row
from tasks.operations import forward_backward, in_order, optim_step, save_state
from tasks.run import Completed

# What every provider means alike by these names; its other numbers are kept as `provider/<name>`.
COMMON_METRICS = {"loss", "grad_norm", "clip_fraction"}


class TrainingDivergedError(RuntimeError):
    """A loss or gradient that is not a number: the weights are lost; those of the last saved block are not."""


async def train_step(
    cycle: Cycle, data: Sequence[Datum], loss_function: str, loss_config: Mapping[str, float] | None = None
) -> None:
    """Take the cycle's optimizer steps on its datums, and save when the block ends here.

    `steps_per_batch` steps, each over all of the data: clipped losses see a ratio other than 1 from the second on.
    Without a datum (every group had equal rewards, say) nothing is sent: the weights stay, the cycle still counts.

    Raises:
        TrainingDivergedError: the provider reports a loss or a gradient norm that is not finite.
    """
    policy, optimizer = cycle.policy, optimizer_of(cycle.attempt.config, cycle.number)
    posted = []
    if data:
        payload = forward_backward_payload(list(data), loss_function, loss_config)
        for _ in range(cycle.attempt.config.steps_per_batch):
            posted += [forward_backward(policy, payload), optim_step(policy, optimizer)]
    if cycle.saves:
        posted.append(save_state(policy))
    answers = await in_order(*posted)
    if cycle.saves:
        policy.state_id = answers.pop().result["state_id"]
    cycle.metrics |= {"datums": len(data), "learning_rate": optimizer["learning_rate"] if data else 0.0}
    if data:
        cycle.metrics |= step_metrics(data, answers)


def step_metrics(data: Sequence[Datum], answers: Sequence[Completed]) -> Row:
    """The numbers of a cycle's steps, from their forward_backward and optim_step answers in turn.

    Loss, gradient and clipping are the last step's; the agreement with the sampler is the first's, when both still hold
    the same weights. With several steps, `kl_update` says how far they have moved the policy.

    Raises:
        TrainingDivergedError: as `train_step`.
    """
    first, last, step = answers[0].result, answers[-2].result, answers[-1].result
    row = reported({**last["metrics"], **step["metrics"]})
    if "logprobs" not in data[0]["loss_inputs"]:
        soft = len(data[0]["loss_inputs"]["weights"]["shape"]) > 1
        return row if soft else row | {"loss_per_token": mean_nll(data, first["loss_outputs"])}
    row |= sampler_agreement(data, first["loss_outputs"])
    if len(answers) > 2:
        row["kl_update"] = sampler_agreement(data, last["loss_outputs"])["kl_sampler_trainer_k3"]
    return row


def optimizer_of(config: FlowConfig, cycle: int, *, peak: float | None = None) -> dict[str, Any]:
    """The `optim_step` optimizer of a cycle, with the schedule's learning rate; `peak` in place of the section's."""
    section = config.optimizer
    rate = learning_rate(
        cycle,
        config.cycles,
        section.learning_rate if peak is None else peak,
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


def reported(metrics: Mapping[str, Any]) -> Row:
    """What the provider says of a step, its own names set apart.

    Raises:
        TrainingDivergedError: as `train_step`.
    """
    for name in ("loss", "grad_norm"):
        if name in metrics and not (isinstance(metrics[name], int | float) and math.isfinite(metrics[name])):
            raise TrainingDivergedError(
                f"the step's {name} is {metrics[name]}: training has diverged. Lower optimizer.learning_rate, or "
                "clip the ratio; the state of the last saved block is untouched"
            )
    return {
        name if name in COMMON_METRICS else f"provider/{name}": float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and name != "learning_rate"
    }
