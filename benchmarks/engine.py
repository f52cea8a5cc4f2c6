"""The engine beside transformers + peft: the same work, the same model, the same threads, each in a process of its own.

Work: sampling without stop tokens (so that both write the same number of tokens) and one training pass of LoRA rank 16
on the seven linears, on a plain workload (every prompt another) and a group workload (8 prompts × 8 samples). The peer
generates with its key-value cache in one padded batch and trains on padded batches of 16; it is not asked for
log-probs of what it samples, which the engine always returns.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure

MODEL = "smollm2-135m-instruct"
RANK, ALPHA = 16, 32
PEER_BATCH = 16
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Workload:
    """Prompts, samples of each, and what a reply is made of when it is trained on."""

    name: str
    prompts: list[list[int]]
    samples: int
    new_tokens: int
    replies: list[list[list[int]]]

    @property
    def sampled_tokens(self) -> int:
        return len(self.prompts) * self.samples * self.new_tokens

    @property
    def trained_tokens(self) -> int:
        """Input tokens of the datums as submitted, before any sharing."""
        return sum(
            len(prompt) + len(reply) - 1
            for prompt, replies in zip(self.prompts, self.replies, strict=True)
            for reply in replies
        )


def workloads(quick: bool) -> list[Workload]:
    chooser = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [chooser.randrange(100, 40_000) for _ in range(count)]

    def workload(name: str, lengths: list[int], samples: int, new_tokens: int) -> Workload:
        prompts = [tokens(length) for length in lengths]
        replies = [[tokens(chooser.randrange(4, new_tokens + 1)) for _ in range(samples)] for _ in lengths]
        return Workload(name, prompts, samples, new_tokens, replies)

    count, new_tokens = (8, 12) if quick else (16, 24)
    return [
        workload("plain", [chooser.randrange(24, 97) for _ in range(count)], 1, new_tokens),
        workload("group", [chooser.randrange(36, 45) for _ in range(4 if quick else 8)], 8, new_tokens),
    ]


Sampler = Callable[[Workload], None]


def measure(sample: Sampler, train: Sampler, quick: bool) -> dict[str, float]:
    """Tokens per second of wall clock and of CPU, the best of a few passes.

    The second number is the one to read where the machine has other things to do.
    """
    found: dict[str, float] = {}
    for workload in workloads(quick):
        for verb, function, tokens in (
            ("sample", sample, workload.sampled_tokens),
            ("train", train, workload.trained_tokens),
        ):
            wall, cpu = [], []
            for _ in range(2 if quick else 4):  # the first pass also warms up
                started = time.perf_counter(), time.process_time()
                function(workload)
                wall.append(time.perf_counter() - started[0])
                cpu.append(time.process_time() - started[1])
            found[f"{workload.name}_{verb}_tokens_per_s"] = tokens / min(wall)
            found[f"{workload.name}_{verb}_tokens_per_cpu_s"] = tokens / min(cpu)
    found["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def measure_engine(quick: bool) -> dict[str, float]:
    from gateway.providers.base import RunSpec, Work
    from gateway.providers.local.engine import Engine
    from gateway.providers.local.options import EngineOptions
    from whitney.types import PAYLOADS

    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(EngineOptions(models=(MODEL,), threads=THREADS), Path(scratch), lambda sentence: None)
        engine.create_run(RunSpec("run", MODEL, "policy", RANK, ALPHA, seed=0))

        def execute(*batch: tuple[str, dict[str, Any]]) -> None:
            # As the gateway hands them over: validated, with every default of the contract in them.
            complete = [(kind, PAYLOADS[kind].model_validate(payload).model_dump()) for kind, payload in batch]
            outcomes = engine.execute([Work("run", kind, payload, sampler_id="sampler") for kind, payload in complete])
            assert all(outcome.error is None for outcome in outcomes)

        def sample(workload: Workload) -> None:
            params = {"max_tokens": workload.new_tokens, "seed": 1}
            execute(
                *(
                    (
                        "sample",
                        {"prompt": {"token_ids": prompt}, "num_samples": workload.samples, "sampling_params": params},
                    )
                    for prompt in workload.prompts
                )
            )

        def train(workload: Workload) -> None:
            data = [
                datum(prompt, reply)
                for prompt, replies in zip(workload.prompts, workload.replies, strict=True)
                for reply in replies
            ]
            execute(("forward_backward", {"data": data, "loss_function": "cross_entropy"}))

        # One real step: an untrained adapter is served by the base's own weights, and that would be too easy.
        train(workloads(quick=True)[0])
        execute(("optim_step", {"optimizer": {"learning_rate": 1e-5}}))
        execute(("save_weights_for_sampler", {}))
        return measure(sample, train, quick)


def datum(prompt: list[int], reply: list[int]) -> dict[str, Any]:
    """A cross-entropy datum: the reply is trained, the prompt is not."""
    full = prompt + reply
    weights = [0.0] * (len(prompt) - 1) + [1.0] * len(reply)
    return {
        "input": {"token_ids": full[:-1]},
        "loss_inputs": {
            "target_tokens": {"dtype": "int64", "shape": [len(full) - 1], "values": full[1:]},
            "weights": {"dtype": "float32", "shape": [len(full) - 1], "values": weights},
        },
    }


def measure_peer(quick: bool) -> dict[str, float]:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    import models

    torch.set_num_threads(THREADS)
    base = AutoModelForCausalLM.from_pretrained(models.resolve(MODEL).path, dtype=torch.float32)
    base.generation_config.eos_token_id = None  # every reply as long as asked for
    linears = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=linears, task_type="CAUSAL_LM"))

    def sample(workload: Workload) -> None:
        model.eval()
        ids, mask = _padded(workload.prompts, left=True)
        with torch.no_grad():
            written = base.generate(  # peft puts its layers into the base; peft's own generate is untyped
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                max_new_tokens=workload.new_tokens,
                num_return_sequences=workload.samples,
                pad_token_id=2,
            )
        assert written.shape == (len(workload.prompts) * workload.samples, ids.shape[1] + workload.new_tokens)

    def train(workload: Workload) -> None:
        model.train()
        pairs = [
            (prompt, reply)
            for prompt, replies in zip(workload.prompts, workload.replies, strict=True)
            for reply in replies
        ]
        for start in range(0, len(pairs), PEER_BATCH):
            batch = pairs[start : start + PEER_BATCH]
            ids, mask = _padded([prompt + reply for prompt, reply in batch], left=False)
            labels = ids.masked_fill(mask == 0, -100)
            for row, (prompt, _) in enumerate(batch):
                labels[row, : len(prompt)] = -100
            logits = model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1]).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum").backward()
        model.zero_grad(set_to_none=True)

    return measure(sample, train, quick)


def _padded(rows: list[list[int]], left: bool) -> tuple[Any, Any]:
    """Token ids and attention mask, [rows, longest] each."""
    import torch

    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), 2), torch.zeros(len(rows), longest, dtype=torch.int64)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), None) if left else slice(len(row))
        ids[index, place], mask[index, place] = torch.tensor(row), 1
    return ids, mask


PLAIN, GROUP = 1.5, 3.0
"""Targets of the speed over the peer's: on groups, prefix sharing is to give twice as much again."""


def run(quick: bool = False) -> list[Figure]:
    """Both sides' figures, measured one after the other."""
    ours, theirs = (_in_process(side, quick) for side in ("engine", "peer"))
    figures = []
    for name, value in ours.items():
        if name == "peak_memory_mib":
            figures.append(Figure("peak memory", value, "MiB", theirs[name]))
            continue
        workload, verb, per = name.split("_", 2)
        clock, unit = (", CPU time", "tokens/CPU s") if per == "tokens_per_cpu_s" else ("", "tokens/s")
        target = PLAIN if workload == "plain" else GROUP
        figures.append(Figure(f"{verb}, {workload}{clock}", value, unit, theirs[name], at_least=target))
    return figures


def _in_process(side: str, quick: bool) -> dict[str, float]:
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
    code = f"from benchmarks.engine import print_side; print_side({side!r}, quick={quick})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def print_side(side: str, *, quick: bool) -> None:
    """What one side's process has to do: measure, and print the figures as JSON."""
    print(json.dumps(measure_engine(quick) if side == "engine" else measure_peer(quick)))
