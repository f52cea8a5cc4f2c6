"""PPO with a critic: a second run learns what states are worth, the policy what beats that (arXiv 1707.06347)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import ppo_critic as maths
from flows.config import PpoCriticConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.critic import actor_critic_data, ask_critic, open_critic, together, train_critic
from flows.parts.rollout import scored_groups
from flows.parts.step import train_step
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
        groups = await scored_groups(cycle, config)
        await ask_critic(critic, groups)
        data = actor_critic_data(cycle, config, groups, terms)
        await together(
            train_step(cycle, data.policy, maths.LOSS_FUNCTION, terms.loss_config),
            train_critic(cycle, critic, data.critic, config),
        )
    cycles.carry = {"critic_state_id": critic.state_id}
    return cycles.outcome()
