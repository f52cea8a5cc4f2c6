"""PPO with a critic: a second run learns what states are worth, the policy what beats that (arXiv 1707.06347)."""

# No `from __future__ import annotations` in a flow's file: a runner loads it under a name that is not importable, and
# Prefect could not find what the string "PpoCriticConfig" means.
from typing import Any

from algorithms import ppo_critic as maths
from flows.attempt import Attempt
from flows.config import PpoCriticConfig
from flows.critic import actor_critic_data, ask_critic, open_critic, together, train_critic
from flows.cycles import Cycles
from flows.lifecycle import block_flow, training_flow
from flows.outcome import Block, BlockOutcome, Start
from flows.rollout import draw_and_score
from flows.step import train_step
from flows.training import train


@training_flow("ppo_critic")
async def ppo_critic(config: PpoCriticConfig) -> dict[str, Any]:
    """Train an adapter and its critic by PPO; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`. A block saves both runs' states.
    """
    return await train("ppo_critic", config, ppo_critic_cycles)


@block_flow("ppo_critic-cycles")
async def ppo_critic_cycles(attempt: Attempt, block: Block, config: PpoCriticConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state of either run."""
    cycles = await Cycles.begin(attempt, block, start)
    critic = await open_critic(attempt, start)
    terms = config.loss_terms()
    for cycle in cycles:
        groups = await draw_and_score(cycle, config)
        await ask_critic(critic, groups)
        data = actor_critic_data(cycle, config, groups, terms)
        await together(
            train_step(cycle, data.policy, maths.LOSS_FUNCTION, terms.loss_config),
            train_critic(cycle, critic, data.critic, config),
        )
    cycles.carry = {"critic_state_id": critic.state_id}
    return cycles.outcome()
