"""The search of test-time training: which states attempts start from, and what of them is remembered.

The buffer of solutions is too large for a block's outcome: it is a file of the run folder, and the outcome holds the
file's name with the buffer's fingerprint, so that a Retry goes on from exactly the buffer its block began with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from algorithms.puct import ROOT, Buffer, Solution
from flows.config import TttConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycle
from flows.durable.outcome import Block, Start
from flows.parts.record import describe
from flows.parts.rollout import Rollouts, draw_groups, score_groups
from tasks.examples import Example
from tasks.prompt_templates import prompt_tokens_or_none
from tasks.scoring import Group
from tasks.ttt_prompts import start_prompt


async def attempts_from(cycle: Cycle, config: TttConfig, states: Sequence[Solution]) -> tuple[Rollouts, list[Solution]]:
    """One scored group of attempts from each state, and the states they really started from.

    A state is the bare problem, or an earlier solution to improve on; one that leaves no room for a reply behind it, or
    spells out a special token, gives way to the bare problem.
    """
    inputs = cycle.attempt.inputs
    problem = config.problem_of(inputs.data.train)
    starts: list[tuple[Solution, Example]] = []
    for state in states:
        bare = not config.reuse or state == ROOT
        messages = problem.messages if bare else start_prompt(problem, state.text, state.reward, config.template)
        example = replace(problem, messages=messages)
        tokens = prompt_tokens_or_none(inputs.renderer, messages)
        fits = tokens is not None and len(tokens) < inputs.context_tokens
        starts.append((ROOT, problem) if bare or not fits else (state, example))
    drawn = await draw_groups(cycle, [example for _, example in starts], [config.group_size] * len(starts))
    pairs = [(state, group) for (state, _), group in zip(starts, drawn, strict=True) if group is not None]
    groups = [group for _, group in pairs]
    describe(cycle, groups, await score_groups(cycle, groups))
    return Rollouts(cycle, config, groups), [state for state, _ in pairs]


def remember(cycle: Cycle, buffer: Buffer, parents: Sequence[Solution], groups: Sequence[Group]) -> None:
    """Put the attempts of every group into the buffer, as children of the state they started from."""
    before = buffer.best
    for parent, group in zip(parents, groups, strict=True):
        children = [
            Solution.of(text, reward, parent, cycle.number)
            for text, reward in zip(group.texts, group.rewards, strict=True)
        ]
        buffer.add(parent, children)
    best = buffer.best
    if best is None:
        return
    cycle.metrics |= {"best_reward": best.value, "buffer_solutions": len(buffer.solutions)}
    if best != before:
        cycle.attempt.folder.write_best({"reward": best.value, "cycle": best.cycle, "solution": best.text})


def save_buffer(attempt: Attempt, buffer: Buffer, block: Block) -> dict[str, Any]:
    """Write the buffer as it is at the block's end; what the next block's start carries."""
    name = attempt.folder.write_buffer(block.index, buffer.to_json())
    return {"buffer": name, "fingerprint": buffer.fingerprint}


def load_buffer(attempt: Attempt, config: TttConfig, start: Start) -> Buffer:
    """The buffer that the block begins with: empty for the first, else exactly what the one before it left.

    Raises:
        ValueError: the file is missing or is not the one that was written.
    """
    if not start.carry:
        return Buffer(config.buffer_size)
    name = start.carry["buffer"]
    saved = attempt.folder.read_buffer(name)
    buffer = None if saved is None else Buffer.from_json(saved)
    if buffer is None or buffer.fingerprint != start.carry["fingerprint"]:
        raise ValueError(
            f"{attempt.folder.path / name}: the buffer of solutions that this block starts from is "
            f"{'missing' if buffer is None else 'not the one that was saved'}; run where the run folder is"
        )
    return buffer
