"""Everything that can be wrong is found here, before a session exists: data, template, rewards, capability, loss."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import models
from algorithms import ALGORITHMS, require_advertised_loss, require_runnable
from flows.config import ConfigError, DataConfig, FlowConfig
from flows.prepared import Prepared, evaluation_terms, reward_terms
from tasks import data as data_sets
from tasks import rewards
from tasks.completion import Completion
from tasks.credentials import settings_for
from tasks.data import REASONING_GYM, DataSet, DataSource, Example
from tasks.datasets import SHIPPED
from tasks.rendering import Renderer
from tasks.rewards import RewardTerm
from whitney.client import WhitneyClient
from whitney.types import CapabilityRow

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
    with _as_config_error():
        for loss in ALGORITHMS[algorithm].losses:
            require_advertised_loss(config.model.provider, loss)
    data, renderer = await asyncio.to_thread(_load, config)
    client = WhitneyClient(await asyncio.to_thread(settings_for, config.credentials_block))
    try:
        rows = (await client.capabilities()).rows
        prepared = Prepared(algorithm, config, data, renderer, _capability(rows, config, renderer))
        await _refuse_what_cannot_run(prepared)
    except BaseException:
        await client.aclose()
        raise
    return client, prepared


@contextmanager
def _as_config_error() -> Iterator[None]:
    """The loss table, the registry and the rewards raise plain ValueErrors about what the configuration asked for."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _load(config: FlowConfig) -> tuple[DataSet, Renderer]:
    data = data_sets.load(_source(config.data))
    renderer = Renderer(models.resolve(config.model.tokenizer or config.model.name), config.model.chat_template)
    for example in (*data.train, *data.heldout):
        renderer.check_text(example)
    for example in (*data.train[:PROVEN_EXAMPLES], *data.heldout[:PROVEN_EXAMPLES]):
        renderer.check(example)
    return data, renderer


def _source(section: DataConfig) -> DataSource:
    """Raises ConfigError for a setting that would be without effect, which is a misunderstanding."""
    if section.heldout_fraction is not None and (section.heldout or section.source in SHIPPED):
        why = "data.heldout names a file" if section.heldout else f"{section.source} has a split of its own"
        raise ConfigError(f"data.heldout_fraction = {section.heldout_fraction} has no effect: {why}; leave it out")
    if section.reasoning_gym and not section.source.startswith(REASONING_GYM):
        raise ConfigError(f"data.reasoning_gym has no effect: data.source is not {REASONING_GYM}TASK")
    return DataSource(
        source=section.source,
        heldout=Path(section.heldout) if section.heldout else None,
        heldout_fraction=0.1 if section.heldout_fraction is None else section.heldout_fraction,
        limit=section.limit,
        reasoning_gym=section.reasoning_gym,
    )


def _capability(rows: Sequence[CapabilityRow], config: FlowConfig, renderer: Renderer) -> CapabilityRow:
    wanted = (config.model.provider, config.model.name)
    row = next((row for row in rows if (row.provider, row.model) == wanted), None)
    if row is None:
        served = ", ".join(f"{row.provider}/{row.model}" for row in rows) or "nothing"
        raise ConfigError(
            f"model.provider = {wanted[0]!r}, model.name = {wanted[1]!r}: not served here; this gateway serves {served}"
        )
    if config.lora.rank > row.max_lora_rank:
        raise ConfigError(
            f"lora.rank = {config.lora.rank}: {row.provider}/{row.model} takes at most {row.max_lora_rank}"
        )
    if row.tokenizer_sha256 and row.tokenizer_sha256 != renderer.tokenizer_sha256:
        raise ConfigError(
            f"the tokenizer of {renderer.model_name!r} is not the one {row.provider}/{row.model} was loaded with: "
            "token ids would mean other words. Set model.tokenizer to the model's own folder"
        )
    return row


def check_inputs(algorithm: str, config: FlowConfig) -> None:
    """What can be checked without an endpoint: the loss table, data, template, reward functions.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: as `prepare`.
    """
    with _as_config_error():
        for loss in ALGORITHMS[algorithm].losses:
            require_advertised_loss(config.model.provider, loss)
        rewards.check_spec([*reward_terms(config), *evaluation_terms(config)])
    _load(config)


async def _refuse_what_cannot_run(prepared: Prepared) -> None:
    capability, data = prepared.capability, prepared.data
    with _as_config_error():
        require_runnable(ALGORITHMS[prepared.algorithm], capability.provider, capability.operations)
    if not any(len(prepared.renderer.prompt_tokens(one)) < prepared.context_tokens for one in data.train):
        raise ConfigError(
            f"{prepared.config.data.source}: every prompt fills the context of {prepared.context_tokens} tokens; "
            "shorten the prompts or the template"
        )
    if not prepared.rewards:
        _require_answers(data.train, "training examples", "which SFT imitates")
        if prepared.config.evaluation.enabled:
            _require_answers(prepared.heldout, "held-out examples", "of which the loss is measured")
    else:
        await _require_scorable("rewards", prepared.rewards, data.train)
    if prepared.config.evaluation.enabled and prepared.heldout:
        await _require_scorable("evaluation.reward", prepared.evaluation_rewards, prepared.heldout)


def _require_answers(examples: Sequence[Example], which: str, why: str) -> None:
    without = sum(example.answer is None for example in examples)
    if without:
        raise ConfigError(f"{without} of {len(examples)} {which} have no `answer`, {why}")


async def _require_scorable(field: str, terms: Sequence[RewardTerm], examples: Sequence[Example]) -> None:
    """Try every term that compares with the answer on the answers themselves: one that scores none never will."""
    with _as_config_error():
        rewards.check_spec(terms)
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
