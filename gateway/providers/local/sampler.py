"""Autoregressive sampling: prompts prefilled once, all rows decoded together, finished rows dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gateway.providers.local.decoding import OwnCache, PromptCache, decode_step
from gateway.providers.local.draws import DrawSettings, choose, uniforms
from gateway.providers.local.forward import KeysValues, Network, final_norm, hidden_states
from gateway.providers.local.head import top_logprobs
from gateway.providers.local.packing import pack_sequences
from gateway.providers.local.products import product

# Beyond this many rows a step gains little speed and its [rows, vocabulary] arrays grow.
MAX_ROWS = 128


@dataclass(frozen=True)
class SampleRequest:
    """One `sample` operation."""

    prompt: list[int]
    num_samples: int
    max_tokens: int
    settings: DrawSettings
    seed: int
    stop_tokens: frozenset[int]
    prompt_top: int = 0


@dataclass
class Completion:
    """One sampled sequence; `logprobs` are the model's own, at temperature 1 and without truncation."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: str = "length"


# Per prompt position None or the most likely (token, log-prob) pairs.
PromptTop = list[list[tuple[int, float]] | None]


@dataclass
class Sampled:
    """The answer to one request."""

    completions: list[Completion]
    prompt_top: PromptTop | None = None


@dataclass(frozen=True)
class SamplerLimits:
    """`prefill_tokens` a pass and `cache_bytes` of keys and values at one time."""

    prefill_tokens: int
    cache_bytes: int


@torch.no_grad()
def sample(network: Network, requests: Sequence[SampleRequest], limits: SamplerLimits) -> list[Sampled]:
    """Answer `requests` together; what each gets does not depend on the others."""
    answers = [Sampled([Completion() for _ in range(request.num_samples)]) for request in requests]
    for wave in _waves(network, requests, limits):
        prefilled = _prefill(network, [requests[number] for number, _ in wave], limits)
        for number, _ in wave:
            if requests[number].prompt_top and answers[number].prompt_top is None:
                answers[number].prompt_top = prefilled.tops[tuple(requests[number].prompt)]
        _decode(network, requests, wave, prefilled, answers)
    return answers


_Row = tuple[int, int]
"""(number of the request, row within it)."""


def _waves(network: Network, requests: Sequence[SampleRequest], limits: SamplerLimits) -> list[list[_Row]]:
    """Rows split so that each wave's caches fit; the draws, by (seed, row, step), do not notice."""
    shapes = network.base.shapes
    token_bytes = 2 * 4 * shapes.layers * shapes.key_width
    waves: list[list[_Row]] = [[]]
    used = 0
    for number, request in enumerate(requests):
        for row in range(request.num_samples):
            needed = token_bytes * request.max_tokens
            if row == 0 or not waves[-1]:
                needed += token_bytes * len(request.prompt)
            if waves[-1] and (used + needed > limits.cache_bytes or len(waves[-1]) == MAX_ROWS):
                waves.append([])
                used, needed = 0, token_bytes * (request.max_tokens + len(request.prompt))
            waves[-1].append((number, row))
            used += needed
    return waves


@dataclass(frozen=True)
class _Prefilled:
    """Distinct prompts after one pass: caches, the state each continues from [P, width], and asked-for prompt tops."""

    place: dict[tuple[int, ...], int]
    cache: PromptCache
    states: Tensor
    tops: dict[tuple[int, ...], PromptTop]


def _prefill(network: Network, requests: Sequence[SampleRequest], limits: SamplerLimits) -> _Prefilled:
    asked: dict[tuple[int, ...], int] = {}
    for request in requests:
        key = tuple(request.prompt)
        asked[key] = max(asked.get(key, 0), request.prompt_top)
    prompts = list(asked)
    cache = PromptCache.empty(network.base.shapes, [len(prompt) for prompt in prompts])
    states = torch.empty(len(prompts), network.base.shapes.width)
    tops: dict[tuple[int, ...], PromptTop] = {}
    packs = pack_sequences(prompts, max_tokens=limits.prefill_tokens, break_even=network.attention_break_even())
    for pack in packs:
        kept: KeysValues = []
        stream = final_norm(network.base, hidden_states(network, pack, kept))
        for place, path in pack.paths.items():
            states[place] = stream[path[-1]]
            if count := asked[prompts[place]]:
                tops[prompts[place]] = prompt_top(network, stream[path], count)
        cache.fill(pack.paths, kept)
    return _Prefilled({prompt: place for place, prompt in enumerate(prompts)}, cache, states, tops)


def prompt_top(network: Network, states: Tensor, count: int) -> PromptTop:
    """The likeliest tokens at each position but the first, given what stands before it; `states` [T, width]."""
    if len(states) == 1:
        return [None]
    tokens, logprobs = top_logprobs(states[:-1], network.base.head, count)
    pairs = zip(tokens.tolist(), logprobs.tolist(), strict=True)
    return [None, *(list(zip(*pair, strict=True)) for pair in pairs)]


def _decode(
    network: Network,
    requests: Sequence[SampleRequest],
    wave: list[_Row],
    prefilled: _Prefilled,
    answers: list[Sampled],
) -> None:
    rows = _LiveRows.of(requests, wave, prefilled)
    own = OwnCache.empty(network.base.shapes, len(wave))
    states = prefilled.states[rows.prompts]
    step = 0
    while True:
        logprobs = torch.log_softmax(product(states, network.base.head), -1)
        chosen = rows.draw(logprobs, step)
        taken = logprobs.gather(1, chosen[:, None])[:, 0]
        goes_on = rows.record(chosen.tolist(), taken.tolist(), answers)
        if not any(goes_on):
            return
        if not all(goes_on):
            kept = torch.tensor(goes_on).nonzero()[:, 0]
            chosen = chosen[kept]
            rows = rows.keep(kept)
            own.keep(kept)
        positions = prefilled.cache.lengths[rows.prompts] + step
        stream = decode_step(network, chosen, positions, prompts=rows.prompts, prompt_cache=prefilled.cache, own=own)
        states = final_norm(network.base, stream)
        step += 1


@dataclass(frozen=True)
class _LiveRows:
    """The rows still being written, ordered by prompt."""

    requests: Sequence[SampleRequest]
    places: list[_Row]
    prompts: Tensor
    seeds: np.ndarray[tuple[int], np.dtype[np.uint64]]
    row_numbers: np.ndarray[tuple[int], np.dtype[np.uint64]]

    @classmethod
    def of(cls, requests: Sequence[SampleRequest], wave: list[_Row], prefilled: _Prefilled) -> _LiveRows:
        prompt_of = [prefilled.place[tuple(requests[number].prompt)] for number, _ in wave]
        order = sorted(range(len(wave)), key=lambda index: prompt_of[index])
        places = [wave[index] for index in order]
        return cls(
            requests,
            places,
            torch.tensor([prompt_of[index] for index in order]),
            np.array([requests[number].seed for number, _ in places], np.uint64),
            np.array([row for _, row in places], np.uint64),
        )

    def draw(self, logprobs: Tensor, step: int) -> Tensor:
        """A token for each row, by the settings of its request."""
        uniform = torch.from_numpy(uniforms(self.seeds, self.row_numbers, step))
        settings = [self.requests[number].settings for number, _ in self.places]
        if len(set(settings)) == 1:
            return choose(logprobs, settings[0], uniform)
        chosen = torch.empty(len(self.places), dtype=torch.int64)
        for one in set(settings):
            rows = torch.tensor([index for index, setting in enumerate(settings) if setting == one])
            chosen[rows] = choose(logprobs[rows], one, uniform[rows])
        return chosen

    def record(self, tokens: list[int], logprobs: list[float], answers: list[Sampled]) -> list[bool]:
        """Write a step down; whether each row goes on."""
        goes_on = []
        for (number, row), token, logprob in zip(self.places, tokens, logprobs, strict=True):
            request, completion = self.requests[number], answers[number].completions[row]
            completion.tokens.append(token)
            completion.logprobs.append(logprob)
            if token in request.stop_tokens:
                completion.stop_reason = "stop"
            goes_on.append(completion.stop_reason != "stop" and len(completion.tokens) < request.max_tokens)
        return goes_on

    def keep(self, kept: Tensor) -> _LiveRows:
        """The rows that go on."""
        indices = kept.numpy()
        return _LiveRows(
            self.requests,
            [self.places[index] for index in indices.tolist()],
            self.prompts[kept],
            self.seeds[indices],
            self.row_numbers[indices],
        )
