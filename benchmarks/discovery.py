"""Does test-time training find better solutions than the untrained model with as many tokens?

The problem is the starter's: a sentence with as many different letters as possible, scored by a verifier that knows no
right answer. The baseline draws from the base model, with the same prompt, temperature and length limit, until it has
sampled at least as many tokens; each side keeps its best. A score from `SOLVED` on is called solved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from algorithms import request_seed, result_sampler_id
from benchmarks.distillation import model_of
from benchmarks.experiments import Experiment, Finding
from benchmarks.surroundings import gateway_as_endpoint
from benchmarks.training import STARTERS, train
from flows.checks.prepare import prepare
from flows.checks.prepared import Prepared
from flows.config import TttConfig
from flows.load_config import load_algorithm
from tasks.completion import Completion
from tasks.jsonl import read_jsonl
from tasks.rewards import score
from whitney.heartbeat import beat
from whitney.types import CreateRun

PROBLEM = STARTERS.parent / "examples" / "pangram.jsonl"

SOLVED = 0.8
"""21 of the 26 letters."""

BASELINE_ROUND = 1_000_007
"""Of `request_seed`: no request of a flow has it."""


@dataclass(slots=True)
class Drawn:
    """Scores of the base model's attempts, and the tokens they took."""

    scores: list[float] = field(default_factory=list)
    tokens: int = 0


def measure(experiment: Experiment, folder: Path) -> Finding:
    """Test-time training, then the base model with the same tokens, on one gateway."""
    with gateway_as_endpoint(folder / "gateway", models=(model_of(experiment),)):
        trained = train(experiment.path, experiment.settings, folder)
        config = load_algorithm(experiment.path, experiment.settings)[1]
        assert isinstance(config, TttConfig)
        base = asyncio.run(draw_from_base(config, trained.summary["tokens"]["sampled"]))
    curve = trained.curve("best_reward")
    best_of_base = max(base.scores)
    return Finding(
        figures={
            "best, ttt": curve[-1],
            "best, base": best_of_base,
            "mean of the last cycle, ttt": trained.rows[-1]["reward_mean"],
            "mean, base": sum(base.scores) / len(base.scores),
            "solved, base": sum(one >= SOLVED for one in base.scores) / len(base.scores),
            "tokens, ttt": trained.summary["tokens"]["sampled"],
            "tokens, base": base.tokens,
            "cycles": len(curve),
        },
        curve=curve,
        met=curve[-1] > best_of_base,
    )


async def draw_from_base(config: TttConfig, tokens: int) -> Drawn:
    """Groups of the bare problem from the untrained model, until at least so many tokens are sampled."""
    client, inputs = await prepare("ttt", config)
    drawn = Drawn()
    async with client:
        session = await client.create_session(create_key=f"best-of-n-{config.seed}")
        try:
            base = CreateRun(create_key="base", provider=config.model.provider, model=config.model.name)
            run_id = (await client.create_run(session.session_id, base)).run_id
            sampler_id = result_sampler_id(await client.run_operation(run_id, "save_weights_for_sampler", {}))
            async with beat(client, session.session_id, ttl_s=session.ttl_s):
                for group in count():
                    if drawn.tokens >= tokens:
                        break
                    request = _request(inputs, config, group)
                    sample = await client.sampler_operation(run_id, sampler_id, "sample", request)
                    await _take(drawn, sample["sequences"], inputs, config)
            await client.finish(run_id)
            await client.wait_terminal(run_id)
        finally:
            await client.close_session(session.session_id)
    return drawn


def _request(inputs: Prepared, config: TttConfig, group: int) -> dict[str, Any]:
    seed = request_seed(config.seed, 0, group, BASELINE_ROUND)
    request = inputs.sample_request(
        config.problem_of(inputs.data.train),
        num_samples=config.group_size,
        temperature=config.sampling.temperature,
        seed=seed,
    )
    assert request is not None, "the flow has just trained on this prompt"
    return request


async def _take(drawn: Drawn, sequences: Sequence[dict[str, Any]], inputs: Prepared, config: TttConfig) -> None:
    """Score a group as the flow does."""
    problem = config.problem_of(inputs.data.train)
    attempts = [
        Completion(
            prompt=problem.messages,
            text=inputs.renderer.decode(one["tokens"]),
            token_count=len(one["tokens"]),
            finished=one["stop_reason"] == "stop",
            example=problem,
        )
        for one in sequences
    ]
    scored = await score(attempts, inputs.rewards)
    drawn.scores += [value for value in scored.total if value is not None]
    drawn.tokens += sum(one.token_count for one in attempts)


def problem_text() -> str:
    """The starter's one problem, as it is put to the model."""
    return read_jsonl(PROBLEM)[0].messages[-1]["content"]


EXPERIMENTS = tuple(
    Experiment(
        f"ttt, seed {seed}",
        "discovery",
        "ttt.toml",
        (f"seed={seed}", "save_every=6"),
        measure,
    )
    for seed in range(3)
)
