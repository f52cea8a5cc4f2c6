"""REINFORCE++: the group's advantage and, token by token, a KL term against the initial weights (arXiv 2501.03262)."""

# Annotations are read by Prefect, so they are no strings here: see flows/lifecycle.py.
from typing import Any

from algorithms import reinforce_pp as maths
from flows.config import ReinforcePpConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycles
from flows.durable.outcome import Block, BlockOutcome, Start
from flows.lifecycle import block_flow, training_flow
from flows.parts.rollout import sample_groups
from flows.parts.step import train_step
from flows.teacher import reference_logprobs
from flows.training import train


@training_flow("reinforce_pp")
async def reinforce_pp(config: ReinforcePpConfig) -> dict[str, Any]:
    """Train an adapter by REINFORCE++; returns the run's summary.

    Blocks, Retry and errors: `flows.training.train`.
    """
    return await train("reinforce_pp", config, reinforce_pp_cycles)


@block_flow("reinforce_pp-cycles")
async def reinforce_pp_cycles(attempt: Attempt, block: Block, config: ReinforcePpConfig, start: Start) -> BlockOutcome:
    """A block of cycles, from `start` to a saved state."""
    cycles = await Cycles.begin(attempt, block, start)
    penalty = maths.penalty(config.kl, config.kl_coef) if config.kl_coef else None
    terms = config.loss_terms()
    for cycle in cycles:
        rollouts = await sample_groups(cycle, config)
        if config.kl_coef:
            await reference_logprobs(cycle, rollouts.groups)
        batch = rollouts.batch(maths.advantages, penalty=penalty, whiten=config.whiten, terms=terms)
        await train_step(cycle, batch.data, config.loss_function, terms.loss_config)
    return cycles.outcome()
