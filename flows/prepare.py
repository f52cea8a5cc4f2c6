"""Everything that can be wrong is found here, before a session exists: data, template, rewards, capability, loss."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import models
from algorithms import ALGORITHMS, require_runnable
from flows.config import (
    ConfigError,
    CustomConfig,
    DpoConfig,
    FlowConfig,
    GroupConfig,
    OpsdConfig,
    SdpoConfig,
    SftConfig,
    TttConfig,
)
from flows.prepared import Prepared, evaluation_terms, feedback_source, problem_of, reward_terms
from flows.refusals import as_config_error, capability_row, check_options, teacher_row
from tasks import data as data_sets
from tasks import preferences, rewards
from tasks.completion import Completion
from tasks.credentials import settings_for
from tasks.data import REASONING_GYM, DataSet, DataSource, Example
from tasks.datasets import SHIPPED
from tasks.feedback import check_feedback
from tasks.rendering import Renderer
from tasks.rewards import RewardTerm
from tasks.teacher_prompts import check_demonstrations
from whitney.client import WhitneyClient

# The template is proven on so many examples (0.4 s for 241 of SmolLM2's); special tokens are looked for in all.
PROVEN_EXAMPLES = 256

# Answers that a reward is tried on: enough to tell a reward that fits the data from one that never can.
TRIED_ANSWERS = 64


async def prepare(algorithm: str, config: FlowConfig) -> tuple[WhitneyClient, Prepared]:
    """Connect and check; on any error the client is closed again.

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
        await _refuse_what_cannot_run(prepared)
    except BaseException:
        await client.aclose()
        raise
    return client, prepared


def _load(config: FlowConfig) -> tuple[DataSet, Renderer]:
    load = preferences.load if isinstance(config, DpoConfig) else data_sets.load
    data = load(_source(config))
    renderer = Renderer(models.resolve(config.model.tokenizer or config.model.name), config.model.chat_template)
    for example in (*data.train, *data.heldout):
        renderer.check_text(example)
    for example in (*data.train[:PROVEN_EXAMPLES], *data.heldout[:PROVEN_EXAMPLES]):
        renderer.check(example)
    return data, renderer


def _source(config: FlowConfig) -> DataSource:
    """Raises ConfigError for a setting that would be without effect, which is a misunderstanding."""
    section = config.data
    # One problem is solved, none is held out.
    fraction = 0.0 if isinstance(config, TttConfig) else 0.1
    if section.heldout_fraction is not None and (section.heldout or section.source in SHIPPED):
        why = "data.heldout names a file" if section.heldout else f"{section.source} has a split of its own"
        raise ConfigError(f"data.heldout_fraction = {section.heldout_fraction} has no effect: {why}; leave it out")
    if section.reasoning_gym and not section.source.startswith(REASONING_GYM):
        raise ConfigError(f"data.reasoning_gym has no effect: data.source is not {REASONING_GYM}TASK")
    return DataSource(
        source=section.source,
        heldout=Path(section.heldout) if section.heldout else None,
        heldout_fraction=fraction if section.heldout_fraction is None else section.heldout_fraction,
        limit=section.limit,
        reasoning_gym=section.reasoning_gym,
    )


def check_inputs(algorithm: str, config: FlowConfig) -> None:
    """What can be checked without an endpoint: the loss table, data, template, reward functions.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: as `prepare`.
    """
    with as_config_error():
        check_options(algorithm, config)
        if terms := [*reward_terms(config), *evaluation_terms(config)]:  # preferences need none
            rewards.check_spec(terms)
    _load(config)


async def _refuse_what_cannot_run(prepared: Prepared) -> None:
    config, capability = prepared.config, prepared.capability
    train: Sequence[Example] = prepared.data.train
    with as_config_error():
        row = ALGORITHMS[prepared.algorithm]
        if isinstance(config, GroupConfig) and config.kl.coef:
            row = row.with_run("reference")
        if isinstance(config, CustomConfig):
            row = replace(row, needs_sum_reduction=config.loss_function == "cross_entropy")
        require_runnable(row, capability.provider, capability.operations, capability.loss_reduction)
    if isinstance(config, TttConfig):
        train = [problem_of(train, config)]
    if not any(len(prepared.renderer.prompt_tokens(one)) < prepared.context_tokens for one in train):
        raise ConfigError(
            f"{config.data.source}: every prompt fills the context of {prepared.context_tokens} tokens; "
            "shorten the prompts or the template"
        )
    with as_config_error():
        _require_teaching(config, train)
    if prepared.rewards:
        await _require_scorable("rewards", prepared.rewards, train)
    if config.evaluation.enabled and prepared.heldout:
        if isinstance(config, SftConfig):
            _require_answers(prepared.heldout, "held-out examples", "of which the loss is measured")
        if prepared.evaluation_rewards:
            await _require_scorable("evaluation.reward", prepared.evaluation_rewards, prepared.heldout)


def _require_teaching(config: FlowConfig, train: Sequence[Example]) -> None:
    """What the examples must hold for algorithms that learn from more than a reward."""
    if isinstance(config, SftConfig):
        _require_answers(train, "training examples", "which SFT imitates")
    if isinstance(config, OpsdConfig):
        check_demonstrations(train, config.demonstration_field)
    if isinstance(config, SdpoConfig):
        check_feedback(feedback_source(config), train)


def _require_answers(examples: Sequence[Example], which: str, why: str) -> None:
    without = sum(example.answer is None for example in examples)
    if without:
        raise ConfigError(f"{without} of {len(examples)} {which} have no `answer`, {why}")


async def _require_scorable(field: str, terms: Sequence[RewardTerm], examples: Sequence[Example]) -> None:
    """Try every term that compares with the answer on the answers themselves: one that scores none never will."""
    with as_config_error():
        rewards.check_spec(terms)
        rewards.check_examples(terms, examples)
    for term in terms:
        if not rewards.needs_answer([term]):
            continue
        _require_answers(examples, "examples", f"which {field} = {term.function!r} compares with")
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
