"""Everything that can be wrong is found here, before a session exists: data, template, rewards, capability, loss."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import models
from algorithms import ALGORITHMS, require_runnable
from flows.checks.prepared import Prepared
from flows.checks.reading import read
from flows.checks.refusals import as_config_error, capability_row, check_options, require_weights, teacher_row
from flows.config import ConfigError, FlowConfig, SftConfig, TttConfig
from tasks import rewards
from tasks.completion import Completion
from tasks.credentials import settings_for
from tasks.data import DataSet
from tasks.examples import Example, require_answers
from tasks.rendering import Renderer
from tasks.rewards import RewardTerm
from whitney.client import WhitneyClient

# The template is proven on so many examples (0.4 s for 241 of SmolLM2's); special tokens are looked for in all.
PROVEN_EXAMPLES = 256

# Answers that a reward is tried on: enough to tell a reward that fits the data from one that never can.
TRIED_ANSWERS = 64


async def prepare(
    algorithm: str, config: FlowConfig, *, not_there_yet: Collection[str] = (), goes_on: bool = False
) -> tuple[WhitneyClient, Prepared]:
    """Connect and check; on any error the client is closed again.

    `not_there_yet` are states that an earlier stage of a pipeline is still to save: they are not looked for. Nor are
    any of a run that `goes_on`: which it still needs is known later (`flows.durable.weights_left`).

    Raises:
        ConfigError: what cannot work here, with the field to change.
        DataError, RenderingError, ModelError: data, chat template or model files cannot be used.
        WhitneyError: the endpoint is unreachable, or refuses the key.
    """
    with as_config_error():
        check_options(algorithm, config)
    data, renderer = await asyncio.to_thread(_load, config)
    client = WhitneyClient(await asyncio.to_thread(settings_for, config.credentials_block))
    try:
        rows = (await client.capabilities()).rows
        row = capability_row(rows, config, renderer)
        teacher = teacher_row(rows, config, renderer, row)
        prepared = Prepared(algorithm, config, data, renderer, capability=row, teacher_capability=teacher)
        with as_config_error():
            await _refuse_what_cannot_run(prepared)
        if not goes_on:
            await require_weights(client, config, not_there_yet)
    except BaseException:
        await client.aclose()
        raise
    return client, prepared


def _load(config: FlowConfig) -> tuple[DataSet, Renderer]:
    data = read(config)
    renderer = Renderer(models.resolve(config.model.tokenizer or config.model.name), config.model.chat_template)
    for example in (*data.train, *data.heldout):
        renderer.check_text(example)
    for example in (*data.train[:PROVEN_EXAMPLES], *data.heldout[:PROVEN_EXAMPLES]):
        renderer.check(example)
    return data, renderer


def data_fingerprint(config: FlowConfig) -> str:
    """What the data is told from other data by.

    Raises:
        ConfigError, DataError: it cannot be read.
    """
    return read(config).fingerprint


def check_inputs(algorithm: str, config: FlowConfig) -> None:
    """What can be checked without an endpoint: the loss table, data, template, reward functions.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: as `prepare`.
    """
    with as_config_error():
        check_options(algorithm, config)
        if terms := [*config.reward_terms(), *config.evaluation_terms()]:  # preferences need none
            rewards.check_spec(terms)
    _load(config)


async def _refuse_what_cannot_run(prepared: Prepared) -> None:
    config, capability = prepared.config, prepared.capability
    train: Sequence[Example] = prepared.data.train
    row = config.needs(ALGORITHMS[prepared.algorithm])
    require_runnable(row, capability.provider, capability.operations, capability.loss_reduction)
    if isinstance(config, TttConfig):
        train = [config.problem_of(train)]
    if not any(len(prepared.renderer.prompt_tokens(one)) < prepared.context_tokens for one in train):
        raise ConfigError(
            f"{config.data.source}: every prompt fills the context of {prepared.context_tokens} tokens; "
            "shorten the prompts or the template"
        )
    config.check_data(train)
    if prepared.rewards:
        await _require_scorable("rewards", prepared.rewards, "training examples", train)
    if config.evaluation.enabled and prepared.heldout:
        if isinstance(config, SftConfig):
            require_answers(prepared.heldout, "held-out examples", "of which the loss is measured")
        if prepared.evaluation_rewards:
            await _require_scorable(
                "evaluation.reward", prepared.evaluation_rewards, "held-out examples", prepared.heldout
            )


async def _require_scorable(field: str, terms: Sequence[RewardTerm], which: str, examples: Sequence[Example]) -> None:
    """Try every term that compares with the answer on the answers themselves: one that scores none never will."""
    rewards.check_spec(terms)
    rewards.check_examples(terms, examples)
    for term in terms:
        if not rewards.needs_answer([term]):
            continue
        require_answers(
            examples, which, f"which {field} = {term.function!r} compares with; add it, or leave {field} out"
        )
        gold = [
            Completion(prompt=one.messages, text=one.answer or "", token_count=1, finished=True, example=one)
            for one in examples[:TRIED_ANSWERS]
        ]
        scores = await rewards.score(gold, [term])
        if all(score is None for score in scores.total):
            raise ConfigError(
                f"{field} = {term.function!r} cannot score a single answer of the data, {gold[0].text!r} for one: "
                f"choose another of {', '.join(sorted(rewards.BUILT_IN))}, or your own 'module:function'"
            )
