"""A provider that answers after fixed delays instead of running a model.

It exists to measure and to test everything around a model: flows, client, order, faults. Results have the contract's
shapes and follow from what was asked (and, for a run, from everything it was trained with) by hash, so that a resumed
run can be told from one that started afresh. States and artifacts are real files of the real formats.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file

from gateway.providers.base import Outcome, RunSpec, Work
from gateway.providers.files import METADATA_KEY, NotWrittenError, read_members, write_archive, write_durably
from models.adapter import CONFIG_FILE, WEIGHTS_FILE, matrices
from models.errors import ModelError
from models.resolve import present, resolve
from whitney.types import RUN_KINDS, SAMPLER_KINDS, CapabilityRow, Usage

_CONTEXT_TOKENS = 8192
_MAX_RANK = 256
_VOCABULARY = 64
_ADAPTED = "q_proj"
"""The one linear of a layer that pretended adapters are for."""


class Delays(BaseModel):
    """Seconds a batch takes, by kind: one operation, or neighbouring sampler operations in parallel as on a GPU."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: float = Field(1.0, ge=0)
    sample: float | None = Field(2.0, ge=0)
    logprobs: float | None = Field(None, ge=0)
    forward: float | None = Field(None, ge=0)
    forward_backward: float | None = Field(None, ge=0)
    optim_step: float | None = Field(None, ge=0)
    save_weights_for_sampler: float | None = Field(None, ge=0)
    save_state: float | None = Field(None, ge=0)
    export_lora: float | None = Field(None, ge=0)

    def of(self, kind: str) -> float:
        """The delay of one kind."""
        own: float | None = getattr(self, kind)
        return self.default if own is None else own


@dataclass(slots=True)
class _Run:
    """`lineage` is a hash over everything that has changed the pretended weights."""

    spec: RunSpec
    lineage: str
    steps: int = 0

    def advance(self, change: object) -> None:
        self.lineage = _hash(self.lineage, change)


class DelayProvider:
    """Implements `gateway.providers.base.Provider` without a model.

    Args:
        models: names to serve; those that are known locally lend their tokenizer's digest.
        delays: seconds by kind.
    """

    batches_samplers = True

    def __init__(self, models: Sequence[str] = ("tiny",), delays: Delays | None = None) -> None:
        self._models = tuple(models)
        self._delays = delays or Delays()
        self._tokenizers: dict[str, str | None] = {}
        self._runs: dict[str, _Run] = {}
        self._snapshots: dict[tuple[str, str], str] = {}

    async def start(self) -> None:
        """Look the models up."""
        for name in self._models:
            self._tokenizers[name] = await asyncio.to_thread(_tokenizer_sha256, name)

    async def stop(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self._snapshots.clear()

    def capabilities(self) -> list[CapabilityRow]:
        """One row a model, marked as emulated."""
        return [
            CapabilityRow(
                provider="local",
                model=name,
                operations=[*RUN_KINDS, *SAMPLER_KINDS],
                max_sequence_tokens=_CONTEXT_TOKENS,
                max_lora_rank=_MAX_RANK,
                emulated=True,
                tokenizer_sha256=sha256,
            )
            for name, sha256 in self._tokenizers.items()
        ]

    async def create_run(self, spec: RunSpec) -> None:
        """Begin a lineage: from the seed, or from a state or artifact file that this provider has written."""
        if spec.initial is None:
            self._runs[spec.run_id] = _Run(spec, _hash(spec.model, spec.role, spec.rank, spec.seed))
        else:
            lineage, steps = _read_lineage(spec.initial)
            self._runs[spec.run_id] = _Run(spec, lineage, steps if spec.with_optimizer else 0)

    async def release_run(self, run_id: str) -> None:
        """Forget a run and its snapshots."""
        self._runs.pop(run_id, None)
        for key in [key for key in self._snapshots if key[0] == run_id]:
            del self._snapshots[key]

    async def execute(self, batch: Sequence[Work]) -> list[Outcome]:
        """Wait once for the whole batch, then answer each."""
        await asyncio.sleep(self._delays.of(batch[0].kind))
        return [self._outcome(work) for work in batch]

    def _outcome(self, work: Work) -> Outcome:
        operation: Callable[[_Run, Work], Outcome] = getattr(self, f"_{work.kind}")
        try:
            return operation(self._runs[work.run_id], work)
        except NotWrittenError as error:
            return Outcome(error=error.detail)

    def _save_weights_for_sampler(self, run: _Run, work: Work) -> Outcome:
        self._snapshots[run.spec.run_id, str(work.sampler_id)] = run.lineage
        return Outcome({})

    def _sample(self, run: _Run, work: Work) -> Outcome:
        snapshot = self._snapshots[run.spec.run_id, str(work.sampler_id)]
        params, prompt = work.payload["sampling_params"], work.payload["prompt"]["token_ids"]
        sequences = []
        for row in range(work.payload["num_samples"]):
            random = _random(snapshot, prompt, params["seed"], row)
            length = int(random.integers(1, params["max_tokens"], endpoint=True))
            tokens = random.integers(3, _VOCABULARY, length).tolist()
            stopped = length < params["max_tokens"] and bool(params["stop_token_ids"])
            if stopped:
                tokens[-1] = params["stop_token_ids"][0]
            logprobs = (-random.exponential(1.0, length)).round(6).tolist()
            stop_reason = "stop" if stopped else "length"
            sequences.append({"tokens": tokens, "logprobs": logprobs, "stop_reason": stop_reason})
        topk = _topk(_random(snapshot, prompt), len(prompt), work.payload["topk_prompt_logprobs"])
        sampled = sum(len(sequence["tokens"]) for sequence in sequences)
        usage = Usage(prefill_tokens=len(prompt), sampled_tokens=sampled)
        return Outcome({"sequences": sequences, "topk_prompt_logprobs": topk}, usage=usage)

    def _logprobs(self, run: _Run, work: Work) -> Outcome:
        snapshot = self._snapshots[run.spec.run_id, str(work.sampler_id)]
        tokens = work.payload["input"]["token_ids"]
        random = _random(snapshot, tokens)
        logprobs = [None, *(-random.exponential(1.0, len(tokens) - 1)).round(6).tolist()]
        topk = _topk(random, len(tokens), work.payload["topk"])
        return Outcome({"logprobs": logprobs, "topk": topk}, usage=Usage(prefill_tokens=len(tokens)))

    def _forward(self, run: _Run, work: Work) -> Outcome:
        result, tokens = self._losses(run, work)
        return Outcome(result, usage=Usage(prefill_tokens=tokens))

    def _forward_backward(self, run: _Run, work: Work) -> Outcome:
        result, tokens = self._losses(run, work)
        run.advance(work.payload)
        return Outcome(result, usage=Usage(trained_tokens=tokens))

    def _losses(self, run: _Run, work: Work) -> tuple[dict[str, Any], int]:
        critic = run.spec.role == "critic"
        outputs, total, tokens, trained = [], 0.0, 0, 0
        for datum in work.payload["data"]:
            length = len(datum["input"]["token_ids"])
            weights = np.array(datum["loss_inputs"]["weights"]["values"]).reshape(length, -1)
            numbers = -_random(run.lineage, datum["input"]["token_ids"]).exponential(1.0, length).round(6)
            numbers[~weights.any(-1)] = 0.0
            trained += int(weights.any(-1).sum())
            total -= float(numbers.sum())
            tokens += length
            name = "values" if critic else "logprobs"
            outputs.append({name: {"dtype": "float32", "shape": [length], "values": numbers.tolist()}})
        metrics = {"loss": total, "tokens": float(tokens)}
        if critic:
            metrics |= {"value_mean": -total / trained, "explained_variance": 0.0, "clip_fraction": 0.0}
        return {"metrics": metrics, "loss_outputs": outputs}, tokens

    def _optim_step(self, run: _Run, work: Work) -> Outcome:
        optimizer = work.payload["optimizer"]
        run.advance(optimizer)
        run.steps += 1
        norm = float(_random(run.lineage).exponential())
        metrics = {"grad_norm": norm, "learning_rate": optimizer["learning_rate"], "step": float(run.steps)}
        return Outcome({"metrics": metrics})

    def _save_state(self, run: _Run, work: Work) -> Outcome:
        assert work.output is not None, "the gateway names the file to write"
        metadata = {METADATA_KEY: json.dumps({"lineage": run.lineage, "steps": run.steps}, sort_keys=True)}
        write_durably(work.output, lambda file: save_file(_weights(run), file, metadata))
        return Outcome({})

    def _export_lora(self, run: _Run, work: Work) -> Outcome:
        assert work.output is not None, "the gateway names the file to write"
        config = {
            "peft_type": "LORA",
            "base_model_name_or_path": run.spec.model,
            "r": run.spec.rank,
            "lora_alpha": run.spec.alpha,
            "target_modules": [_ADAPTED],
            "lineage": run.lineage,
        }
        write_archive(work.output, {CONFIG_FILE: json.dumps(config).encode(), WEIGHTS_FILE: save(_adapter(run))})
        return Outcome({})


def _tokenizer_sha256(name: str) -> str | None:
    try:
        return resolve(name).tokenizer_sha256
    except (ModelError, OSError):
        return None  # any name can be pretended to be a model


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _random(*parts: object) -> np.random.Generator:
    return np.random.default_rng(int(_hash(*parts)[:16], 16))


def _topk(random: np.random.Generator, length: int, count: int) -> list[Any] | None:
    """`count` pretended alternatives for every position but the first; None when none are asked for."""
    if count == 0:
        return None
    drawn = [np.sort(random.exponential(1.0, count)).round(6) for _ in range(length - 1)]
    return [None, *([[token, -float(value)] for token, value in enumerate(row)] for row in drawn)]


def _weights(run: _Run) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    return {"lora_A": _random(run.lineage).standard_normal((run.spec.rank, 8)).astype(np.float32)}


def _adapter(run: _Run) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """A pair of the right shapes for each layer of the model, where it is one; of another name, for one small layer."""
    folder, random, rank = present(run.spec.model), _random(run.lineage), run.spec.rank
    shapes = matrices(folder) if folder else {f"model.layers.0.self_attn.{_ADAPTED}": (8, 8)}
    pairs = {}
    for module, (rows, columns) in shapes.items():
        if module.endswith(_ADAPTED):
            pairs[f"base_model.model.{module}.lora_A.weight"] = random.standard_normal((rank, columns), np.float32)
            pairs[f"base_model.model.{module}.lora_B.weight"] = random.standard_normal((rows, rank), np.float32)
    return pairs


def _read_lineage(path: Path) -> tuple[str, int]:
    """The hash a state or an artifact goes on from, and its optimizer's steps."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "numpy") as file:
                record = json.loads(file.metadata()[METADATA_KEY])
            return record["lineage"], record["steps"]
        (config,) = read_members(path, CONFIG_FILE)
        return json.loads(config)["lineage"], 0
    except (SafetensorError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} was not written by the delay provider: it cannot be restored here") from error
