"""How fast a batch becomes bytes: building datums and encoding them, orjson beside the standard library's json.

Times are CPU seconds, which a busy neighbour hardly
moves; the two encoders take turns on the same payload, and each answer is the best of its rounds.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable

import orjson

from algorithms import forward_backward_payload, rl_datum, scale_data
from algorithms.datums import Datum
from benchmarks.figures import Figure

PROMPT_TOKENS, VOCABULARY = 128, 49_152


def run(quick: bool = False) -> list[Figure]:
    """Measure on 64 datums of 1,024 tokens (8 of them when `quick`), as a GRPO step on SmolLM2 might send.

    Thousands of tokens per CPU second for each stage, and bytes per token on the wire. The peer is json, on the same
    payload. Every log-prob is a float32, as a gateway sends it: it needs fewer digits than a float64.
    """
    rounds = 3 if quick else 7
    sequences = _sequences(8 if quick else 64, 1024 - PROMPT_TOKENS + 1)
    data = [_datum(*sequence) for sequence in sequences]
    tokens = sum(len(datum["input"]["token_ids"]) for datum in data)
    payload = forward_backward_payload(scale_data(data, "token_mean"), "importance_sampling")
    seconds = _best_of(
        rounds,
        {
            "build": lambda: [_datum(*sequence) for sequence in sequences],
            "scale": lambda: scale_data(data, "token_mean"),
            "orjson": lambda: orjson.dumps(payload),
            "json": lambda: json.dumps(payload).encode(),
        },
    )
    ours, theirs = orjson.dumps(payload), json.dumps(payload).encode()
    if orjson.loads(theirs) != json.loads(ours):
        raise AssertionError("the two encoders disagree about the payload")
    speed = {stage: tokens / 1000 / spent for stage, spent in seconds.items()}
    whole = tokens / 1000 / (seconds["build"] + seconds["scale"] + seconds["orjson"])
    unit = "ktok/CPU s"
    return [
        Figure("build", speed["build"], unit),
        Figure("scale", speed["scale"], unit),
        Figure("encode", speed["orjson"], unit, speed["json"], at_least=1.0),
        Figure("build, scale and encode", whole, unit),
        Figure("on the wire", len(ours) / tokens, "bytes/token", len(theirs) / tokens, at_most=1.0),
    ]


def _best_of(rounds: int, stages: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(stages, float("inf"))
    for _ in range(rounds):
        for name, stage in stages.items():  # in turns, so that a slow moment of the machine meets them all
            start = time.process_time()
            stage()
            best[name] = min(best[name], time.process_time() - start)
    return best


def _sequences(count: int, completion_tokens: int) -> list[tuple[list[int], list[int], list[float], float]]:
    source = random.Random(0)
    return [
        (
            [source.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)],
            [source.randrange(VOCABULARY) for _ in range(completion_tokens)],
            [_shortest_float32(-source.expovariate(1.0)) for _ in range(completion_tokens)],
            source.gauss(0.0, 1.0),
        )
        for _ in range(count)
    ]


def _shortest_float32(value: float) -> float:
    """The float32 next to `value`, as the shortest decimal that names it: what the wire's JSON holds."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    return next(short for digits in range(6, 10) if _single(short := float(f"{single:.{digits}g}")) == single)


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _datum(prompt: list[int], completion: list[int], logprobs: list[float], advantage: float) -> Datum:
    return rl_datum(prompt, completion, logprobs, advantage)
