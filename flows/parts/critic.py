"""The critic's run: opened beside the policy's, asked for values, trained on returns, saved at a block's end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from algorithms import Datum, LossTerms, forward_backward_payload, scale_data
from algorithms.actor_critic import ActorCriticData
from algorithms.gradient_weights import at_trained
from algorithms.ppo_critic import CRITIC_LOSS, build, normalize_advantages, value_datum
from flows.config import PpoCriticConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycle
from flows.durable.outcome import Start
from flows.parts.step import optimizer_of, reported
from tasks.operations import forward, forward_backward, in_order, optim_step, save_state
from tasks.run import Run
from tasks.scoring import Group


async def open_critic(attempt: Attempt, start: Start) -> Run:
    """The attempt's critic run: of the base model at first, at the state that the block's start carries later."""
    initial = replace(attempt.initial_weights, role="critic", state_id=None, artifact_id=None)
    return await attempt.trained_run("critic", initial, start.carry.get("critic_state_id"))


async def ask_critic(critic: Run, groups: Sequence[Group]) -> None:
    """Give every sequence its `values`: of the state before each of its tokens. One `forward` for all."""
    asked = [
        (sequence, value_datum(group.prompt_tokens, sequence["tokens"]))
        for group in groups
        for sequence in group.sequences
        if sequence["tokens"]
    ]
    if not asked:
        return
    payload = forward_backward_payload([datum for _, datum in asked], CRITIC_LOSS)
    (answer,) = await in_order(forward(critic, payload, "forward, critic"))
    for (sequence, datum), output in zip(asked, answer.result["loss_outputs"], strict=True):
        sequence["values"] = at_trained(datum, output["values"]["values"])


def actor_critic_data(
    cycle: Cycle, config: PpoCriticConfig, groups: Sequence[Group], terms: LossTerms
) -> ActorCriticData:
    """Advantages for the policy and returns for the critic, of the whole step; what was dropped on the record."""
    built = [
        build(
            group.prompt_tokens,
            group.sequences,
            group.rewards,
            gamma=config.gamma,
            lam=config.gae_lambda,
            terms=terms,
        )
        for group in groups
    ]
    cycle.count_dropped(*(one.dropped_by_reason for one in built))
    policy = [datum for one in built for datum in one.policy]
    if config.normalize_advantages:
        policy = normalize_advantages(policy)
    policy = scale_data(policy, config.aggregation, constant_length=config.sampling.max_tokens)
    # The critic's loss is a plain sum as well: its mean over tokens keeps the learning rate's meaning.
    critic = scale_data([datum for one in built for datum in one.critic], "token_mean", field="weights")
    return ActorCriticData(policy, critic, {})


async def train_critic(cycle: Cycle, critic: Run, data: Sequence[Datum], config: PpoCriticConfig) -> None:
    """The critic's steps of the cycle, as many as the policy's; saves when the block ends here."""
    optimizer = optimizer_of(config, cycle.number, peak=config.critic_learning_rate)
    posted = []
    if data:
        payload = forward_backward_payload(list(data), CRITIC_LOSS, {"value_clip": config.value_clip})
        for _ in range(config.steps_per_batch):
            posted += [
                forward_backward(critic, payload, "forward_backward, critic"),
                optim_step(critic, optimizer, "optim_step, critic"),
            ]
    if cycle.saves:
        posted.append(save_state(critic, "save_state, critic"))
    answers = await in_order(*posted)
    if cycle.saves:
        critic.state_id = answers.pop().result["state_id"]
    if data:
        last = reported({**answers[-2].result["metrics"], **answers[-1].result["metrics"]})
        cycle.metrics |= {f"critic_{name.removeprefix('provider/')}": value for name, value in last.items()}


async def together(*steps: Coroutine[Any, Any, None]) -> None:
    """Steps of different runs at once; all are waited for, then the first failure is raised."""
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
