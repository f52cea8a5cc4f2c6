"""The engine: runs, their weights, and one method for each kind of operation. One caller, one thing at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import models
from gateway.losses import CRITIC_LOSS
from gateway.providers.base import Outcome, RunSpec, Work
from gateway.providers.files import NotWrittenError
from gateway.providers.local.base_weights import BaseWeights, load_base
from gateway.providers.local.checkpoint import TrainingState, load_state, save_state
from gateway.providers.local.critic import run_critic
from gateway.providers.local.draws import DrawSettings
from gateway.providers.local.errors import EngineError
from gateway.providers.local.examples import check_tokens
from gateway.providers.local.forward import Network
from gateway.providers.local.lora import LoraLayout, LoraTensors, fresh_parameters
from gateway.providers.local.losses import DPPO_VARIANTS, LOSSES
from gateway.providers.local.memory import MergedWeights, Snapshots
from gateway.providers.local.optimizer import Moments, adamw_step
from gateway.providers.local.options import EngineOptions
from gateway.providers.local.peft_archive import read_adapter, write_adapter
from gateway.providers.local.sampler import Sampled, SampleRequest, SamplerLimits, sample
from gateway.providers.local.scoring import score
from gateway.providers.local.training import TrainingRequest, run_training
from models import ModelFolder
from whitney.types import RUN_KINDS, SAMPLER_KINDS, CapabilityRow, Usage, WireErrorDetail


@dataclass
class _Run:
    spec: RunSpec
    base: BaseWeights
    state: TrainingState
    version: int
    """Changes with the weights; no two runs, and no two moments of a run, share one."""


class Engine:
    """Executes operations on the CPU. Not safe for concurrent use; the worker process has one thread."""

    def __init__(self, options: EngineOptions, scratch: Path, progress: Callable[[str], None]) -> None:
        """Resolve the models to serve (fetching what is not there yet); weights are loaded at a model's first run."""
        torch.set_num_threads(options.thread_count)
        # use_deterministic_algorithms sets the same and imports torch's compiler for it: 1.6 s and 70 MB unused here.
        torch.set_deterministic_debug_mode("error" if options.deterministic else "default")
        self._options = options
        self._progress = progress
        self._folders = {name: models.resolve(name, progress=progress) for name in options.models}
        self._losses = LOSSES | {"dppo": DPPO_VARIANTS[options.dppo_variant]}
        self._bases: dict[str, BaseWeights] = {}
        self._runs: dict[str, _Run] = {}
        self._versions = itertools.count()
        self._merged = MergedWeights(options.hot_adapters)
        self._snapshots = Snapshots(scratch, in_memory=options.snapshots_in_memory, per_run=options.snapshots_per_run)

    def capabilities(self) -> list[CapabilityRow]:
        """One row a model."""
        return [self._capability(name, folder) for name, folder in self._folders.items()]

    def create_run(self, spec: RunSpec) -> None:
        """Allocate a run.

        Raises:
            EngineError: what `spec` asks for cannot be had; the message names the field.
        """
        if spec.model not in self._folders:
            raise EngineError("unknown_model", f"model {spec.model!r} is not served; served: {sorted(self._folders)}")
        if spec.rank > self._options.max_rank:
            raise EngineError("invalid_lora", f"lora.rank is {spec.rank}, at most {self._options.max_rank} is served")
        base = self._base(spec.model)
        layout = LoraLayout(base.shapes, spec.rank, spec.alpha, value_head=spec.role == "critic")
        self._runs[spec.run_id] = _Run(spec, base, _initial_state(spec, layout, base), next(self._versions))

    def release_run(self, run_id: str) -> None:
        """Forget a run; idempotent."""
        self._runs.pop(run_id, None)
        self._merged.forget(run_id)
        self._snapshots.forget(run_id)

    def execute(self, batch: Sequence[Work]) -> list[Outcome]:
        """One outcome for each item: any one item, or sampler items of one kind on one snapshot."""
        outcomes: dict[int, Outcome] = {}
        ready: list[tuple[int, Work]] = []
        for index, work in enumerate(batch):
            try:
                self._check(work)
                ready.append((index, work))
            except EngineError as error:
                outcomes[index] = _failure(error)
        if ready:
            try:
                results = self._dispatch([work for _, work in ready])
            except EngineError as error:
                results = [_failure(error)] * len(ready)
            except NotWrittenError as error:
                results = [Outcome(error=error.detail)] * len(ready)
            outcomes |= {index: outcome for (index, _), outcome in zip(ready, results, strict=True)}
        return [outcomes[index] for index in range(len(batch))]

    def _dispatch(self, batch: list[Work]) -> list[Outcome]:
        first = batch[0]
        if first.kind == "sample":
            return self._sample(batch)
        if first.kind == "logprobs":
            return self._score(batch)
        handlers: dict[str, Callable[[_Run, Work], Outcome]] = {
            "forward": self._forward,
            "forward_backward": self._forward_backward,
            "optim_step": self._optim_step,
            "save_weights_for_sampler": self._save_weights_for_sampler,
            "save_state": self._save_state,
            "export_lora": self._export_lora,
        }
        return [handlers[work.kind](self._runs[work.run_id], work) for work in batch]

    def _check(self, work: Work) -> None:
        """What can be refused before anything is computed, so that one bad item does not spoil its batch."""
        run = self._runs.get(work.run_id)
        if run is None:
            raise EngineError("unknown_run", f"run {work.run_id} is not held by the engine")
        shapes = run.base.shapes
        if work.kind == "sample":
            prompt = work.payload["prompt"]["token_ids"]
            check_tokens("prompt.token_ids", prompt, shapes.vocabulary, shapes.context_tokens)
            wanted = work.payload["sampling_params"]["max_tokens"]
            if len(prompt) + wanted > shapes.context_tokens:
                raise EngineError(
                    "context_exceeded",
                    f"the prompt's {len(prompt)} tokens and max_tokens {wanted} exceed the model's context of "
                    f"{shapes.context_tokens} tokens",
                )
        if work.kind == "logprobs":
            tokens = work.payload["input"]["token_ids"]
            check_tokens("input.token_ids", tokens, shapes.vocabulary, shapes.context_tokens)

    def _forward(self, run: _Run, work: Work) -> Outcome:
        result = self._evaluate(run, work.payload, None)
        return Outcome(result, usage=Usage(prefill_tokens=_datum_tokens(work.payload)))

    def _forward_backward(self, run: _Run, work: Work) -> Outcome:
        # Into a vector of its own: a request that fails halfway leaves the gathered gradient as it was.
        gradient = LoraTensors(run.state.parameters.layout)
        result = self._evaluate(run, work.payload, gradient)
        if run.state.gradient is None:
            run.state.gradient = gradient
        else:
            run.state.gradient.flat.add_(gradient.flat)
        return Outcome(result, usage=Usage(trained_tokens=_datum_tokens(work.payload)))

    def _optim_step(self, run: _Run, work: Work) -> Outcome:
        state = run.state
        if state.gradient is None:
            # A step of weight decay and momentum alone is never what a caller means.
            raise EngineError(
                "no_gradient", "optim_step without a forward_backward since the last one: nothing to apply"
            )
        if state.moments is None:
            state.moments = Moments.zeros(state.parameters.layout.size)
        metrics = adamw_step(state.parameters.flat, state.gradient.flat, state.moments, work.payload["optimizer"])
        state.gradient = None
        run.version = next(self._versions)
        return Outcome({"metrics": metrics})

    def _save_weights_for_sampler(self, run: _Run, work: Work) -> Outcome:
        assert work.sampler_id is not None, "the gateway names the snapshot to create"
        if run.spec.role == "critic":
            raise EngineError("wrong_role", "a run of role critic has nothing to sample")
        self._snapshots.add(work.sampler_id, work.run_id, run.version, run.state.parameters)
        return Outcome({"sampler_id": work.sampler_id})

    def _save_state(self, run: _Run, work: Work) -> Outcome:
        assert work.output is not None, "the gateway names the file to write"
        save_state(work.output, run.state, run.base)
        return Outcome({})

    def _export_lora(self, run: _Run, work: Work) -> Outcome:
        assert work.output is not None, "the gateway names the file to write"
        write_adapter(work.output, run.state.parameters, run.base.name)
        return Outcome({"format": "peft"})

    def _sample(self, batch: list[Work]) -> list[Outcome]:
        limits = SamplerLimits(self._options.micro_batch_tokens, self._options.cache_bytes)
        requests = [_sample_request(work.payload) for work in batch]
        answers = sample(self._snapshot_network(batch[0]), requests, limits)
        return [_sample_outcome(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _score(self, batch: list[Work]) -> list[Outcome]:
        sequences = [work.payload["input"]["token_ids"] for work in batch]
        tops = [work.payload["topk"] for work in batch]
        answers = score(self._snapshot_network(batch[0]), sequences, tops, self._options.micro_batch_tokens)
        return [
            Outcome({"logprobs": answer.logprobs, "topk": answer.top}, usage=Usage(prefill_tokens=len(sequence)))
            for sequence, answer in zip(sequences, answers, strict=True)
        ]

    def _snapshot_network(self, work: Work) -> Network:
        assert work.sampler_id is not None, "the gateway names the snapshot to read"
        version, lora = self._snapshots.get(work.run_id, work.sampler_id)
        return self._merged.network(work.run_id, version, self._runs[work.run_id].base, lora)

    def _evaluate(self, run: _Run, payload: Mapping[str, Any], gradient: LoraTensors | None) -> dict[str, Any]:
        parameters, loss = run.state.parameters, payload["loss_function"]
        _check_role(run.spec.role, loss)
        network = self._merged.network(run.spec.run_id, run.version, run.base, parameters)
        limit = self._options.micro_batch_tokens
        request = TrainingRequest(network, parameters, payload, run.spec.reduction, limit)
        if loss == CRITIC_LOSS:
            return run_critic(request, gradient)
        return run_training(request, self._losses[loss], gradient)

    def _base(self, name: str) -> BaseWeights:
        if name not in self._bases:
            started = time.monotonic()
            self._bases[name] = load_base(self._folders[name])
            self._progress(f"loaded {name} in {time.monotonic() - started:.1f} s")
        return self._bases[name]

    def _capability(self, name: str, folder: ModelFolder) -> CapabilityRow:
        return CapabilityRow(
            provider="local",
            model=name,
            operations=[*RUN_KINDS, *SAMPLER_KINDS],
            max_sequence_tokens=folder.context_tokens,
            max_lora_rank=self._options.max_rank,
            tokenizer_sha256=folder.tokenizer_sha256,
        )


def _check_role(role: str, loss: str) -> None:
    if (loss == CRITIC_LOSS) != (role == "critic"):
        raise EngineError("wrong_role", f"{loss} does not train a run of role {role}")


def _initial_state(spec: RunSpec, layout: LoraLayout, base: BaseWeights) -> TrainingState:
    if spec.initial is None:
        return TrainingState(fresh_parameters(layout, spec.seed))
    if spec.initial.name.endswith(".tar.gz"):
        return TrainingState(read_adapter(spec.initial, layout))
    return load_state(spec.initial, layout, base, with_optimizer=spec.with_optimizer)


def _sample_request(payload: Mapping[str, Any]) -> SampleRequest:
    params = payload["sampling_params"]
    return SampleRequest(
        prompt=payload["prompt"]["token_ids"],
        num_samples=payload["num_samples"],
        max_tokens=params["max_tokens"],
        settings=DrawSettings(params["temperature"], params["top_p"], params["top_k"] or 0),
        seed=params["seed"],
        stop_tokens=frozenset(params["stop_token_ids"]),
        prompt_top=payload["topk_prompt_logprobs"],
    )


def _sample_outcome(request: SampleRequest, answer: Sampled) -> Outcome:
    sequences = [
        {"tokens": one.tokens, "logprobs": one.logprobs, "stop_reason": one.stop_reason} for one in answer.completions
    ]
    usage = Usage(prefill_tokens=len(request.prompt), sampled_tokens=sum(len(one.tokens) for one in answer.completions))
    top = _first_of_each(answer, request.prompt_top)
    return Outcome({"sequences": sequences, "topk_prompt_logprobs": top}, usage=usage)


def _first_of_each(answer: Sampled, count: int) -> list[Any] | None:
    """The asked-for number of likeliest tokens: a neighbour with the same prompt may have asked for more."""
    if answer.prompt_top is None:
        return None
    return [entry and entry[:count] for entry in answer.prompt_top]


def _datum_tokens(payload: Mapping[str, Any]) -> int:
    return sum(len(datum["input"]["token_ids"]) for datum in payload["data"])


def _failure(error: EngineError) -> Outcome:
    return Outcome(error=WireErrorDetail(code=error.code, message=error.message, details=error.details))
