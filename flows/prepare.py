"""Everything that can be wrong is found here, before a session exists: data, template, capability, loss, lengths."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import models
from algorithms import ALGORITHMS, require_advertised_loss, require_runnable
from flows.config import ConfigError, FlowConfig, GrpoConfig, RewardConfig
from tasks import data as data_sets
from tasks.credentials import settings_for
from tasks.data import DataSet, DataSource, Example
from tasks.provenance import provenance
from tasks.rendering import Renderer
from tasks.rewards import RewardTerm, check_spec, needs_answer
from whitney.client import WhitneyClient
from whitney.types import CapabilityRow

# Rendering is proven on so many examples: 0.4 s for 241 of SmolLM2's, and a template's faults show early.
CHECKED_EXAMPLES = 256


class Texts(NamedTuple):
    """Examples, and how they become tokens."""

    data: DataSet
    renderer: Renderer
    tokenizer_sha256: str


class Prepared:
    """A run's checked inputs. Holds no session and has cost nothing."""

    __slots__ = ("algorithm", "config", "data", "evaluation_rewards", "renderer", "rewards", "row", "tokenizer_sha256")

    def __init__(self, algorithm: str, config: FlowConfig, texts: Texts, row: CapabilityRow) -> None:
        self.algorithm = algorithm
        self.config = config
        self.data = texts.data
        self.renderer = texts.renderer
        self.tokenizer_sha256 = texts.tokenizer_sha256
        self.row = row
        self.rewards = _terms(config.rewards) if isinstance(config, GrpoConfig) else []
        self.evaluation_rewards = _terms([RewardConfig(function=config.evaluation.reward)])

    @property
    def context_tokens(self) -> int:
        """The longest sequence the provider takes for this model."""
        return self.row.max_sequence_tokens

    @property
    def heldout(self) -> Sequence[Example]:
        """The examples that are measured and never trained on."""
        return self.data.heldout[: self.config.evaluation.max_prompts]

    def batch(self, cycle: int, size: int) -> list[Example]:
        """The training examples of a cycle: a function of the cycle alone, so a resumed run needs no cursor."""
        return data_sets.batch(self.data, cycle, size, self.config.seed)

    def pairs(self, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
        """(prompt tokens, answer tokens with the stop token) of examples that have an answer."""
        return [
            (self.renderer.prompt_tokens(example), self.renderer.completion_tokens(example.answer))
            for example in examples
            if example.answer is not None
        ]

    def sample_request(
        self, example: Example, *, num_samples: int, temperature: float, seed: int
    ) -> dict[str, Any] | None:
        """The `sample` payload of a prompt, its length capped at the context left; None when nothing is left."""
        prompt = self.renderer.prompt_tokens(example)
        room = self.context_tokens - len(prompt)
        if room < 1:
            return None
        sampling = self.config.sampling
        params: dict[str, Any] = {
            "max_tokens": min(sampling.max_tokens, room),
            "temperature": temperature,
            "top_p": sampling.top_p,
            "seed": seed,
            "stop_token_ids": list(self.renderer.stop_token_ids),
        }
        if sampling.top_k is not None:
            params["top_k"] = sampling.top_k
        return {"prompt": {"token_ids": prompt}, "num_samples": num_samples, "sampling_params": params}

    def facts(self) -> dict[str, Any]:
        """What a terminal shows at the start."""
        return {
            "algorithm": self.algorithm,
            "model": self.config.model.name,
            "provider": self.config.model.provider,
            "data": self.data.description,
            "train": len(self.data.train),
            "heldout": len(self.heldout),
            "warnings": list(self.data.warnings) + self.warnings(),
        }

    def warnings(self) -> list[str]:
        """Settings that are allowed and probably not meant."""
        sampling = self.config.sampling
        if not self.rewards or (sampling.temperature == 1.0 and sampling.top_p == 1.0 and not sampling.top_k):
            return []
        return [
            f"sampling with temperature {sampling.temperature}, top_p {sampling.top_p}, top_k {sampling.top_k}: the "
            "sampler's log-probs are the model's own at temperature 1, so importance ratios will be off"
        ]

    def record(self, flow_run_id: str) -> dict[str, Any]:
        """config.json: the configuration, and where everything came from."""
        return {
            "flow_run_id": flow_run_id,
            "algorithm": self.algorithm,
            "config": self.config.model_dump(mode="json"),
            "data": {"description": self.data.description, "fingerprint": self.data.fingerprint},
            "template_sha256": self.renderer.template_sha256,
            "tokenizer_sha256": self.tokenizer_sha256,
            "capability": self.row.model_dump(mode="json"),
            **provenance(),
        }

    def heldout_rows(self) -> list[dict[str, Any]]:
        """heldout.jsonl: what the accuracy was measured on."""
        return [
            {"id": one.id, "messages": list(one.messages), "answer": one.answer, "key": one.key} for one in self.heldout
        ]


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
        texts = await asyncio.to_thread(_load, config)
        client = WhitneyClient(await asyncio.to_thread(settings_for, config.credentials_block))
        try:
            rows = (await client.capabilities()).rows
            prepared = Prepared(algorithm, config, texts, _capability(rows, config, texts))
            _require(prepared)
        except BaseException:
            await client.aclose()
            raise
    return client, prepared


@contextmanager
def _as_config_error() -> Iterator[None]:
    """The maths, the loss table and the rewards raise plain ValueErrors about what the configuration asked for."""
    try:
        yield
    except ValueError as error:
        if type(error) is ValueError:
            raise ConfigError(str(error)) from error
        raise


def _load(config: FlowConfig) -> Texts:
    section = config.data
    source = DataSource(
        source=section.source,
        heldout=Path(section.heldout) if section.heldout else None,
        heldout_fraction=section.heldout_fraction,
        limit=section.limit,
        reasoning_gym=section.reasoning_gym,
    )
    folder = models.resolve(config.model.tokenizer or config.model.name)
    renderer = Renderer(folder, config.model.chat_template)
    data = data_sets.load(source)
    for example in data.train[:CHECKED_EXAMPLES]:
        renderer.check(example)
    return Texts(data, renderer, folder.tokenizer_sha256)


def _terms(sections: Sequence[RewardConfig]) -> list[RewardTerm]:
    terms = [RewardTerm(s.function, s.weight, s.finish_bonus, s.arguments) for s in sections]
    check_spec(terms)
    return terms


def _capability(rows: Sequence[CapabilityRow], config: FlowConfig, texts: Texts) -> CapabilityRow:
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
    if row.tokenizer_sha256 and row.tokenizer_sha256 != texts.tokenizer_sha256:
        raise ConfigError(
            f"the tokenizer of {texts.renderer.model_name!r} is not the one {row.provider}/{row.model} was loaded "
            "with: token ids would mean other words. Set model.tokenizer to the model's own folder"
        )
    return row


def _require(prepared: Prepared) -> None:
    require_runnable(ALGORITHMS[prepared.algorithm], prepared.row.provider, prepared.row.operations)
    examples = prepared.data.train
    imitates = not prepared.rewards
    without = sum(example.answer is None for example in examples)
    if without and (imitates or needs_answer(prepared.rewards)):
        raise ConfigError(
            f"{prepared.config.data.source}: {without} of {len(examples)} examples have no `answer`, which "
            + ("SFT imitates" if imitates else "the reward compares with")
        )
    if all(len(prepared.renderer.prompt_tokens(example)) >= prepared.context_tokens for example in examples[:64]):
        raise ConfigError(
            f"every prompt fills the context of {prepared.context_tokens} tokens: shorten the prompts or the template"
        )
