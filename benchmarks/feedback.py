"""Does self-distillation learn from what a verifier says, or would any sentence do?

A teacher that is shown feedback must be able to read it, and this model, as it comes, is not: in a prompt that holds
the student's attempt it mostly repeats the attempt, whatever is said of it. So it first goes to school: SFT on
one-digit sums, bare, and with somebody's attempt and the verifier's verdict on it. Then SDPO starts from that
model twice, on bare questions: once with the verifier's verdict on its own attempts, once with a sentence that says
nothing. The template, the budget and the seed are the same.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from benchmarks.distillation import model_of
from benchmarks.experiments import Experiment, Finding, Stage
from benchmarks.surroundings import gateway_as_endpoint
from benchmarks.training import train
from tasks.datasets.addition import one_digit
from tasks.examples import Example
from tasks.feedback import FeedbackSource, feedback_for
from tasks.rendering import Renderer
from tasks.rewards import RewardPool, RewardTerm
from tasks.scoring import Group
from tasks.teacher_prompts import feedback_prompt

TEMPLATE = "{question}\nAttempt: {attempt}\n{feedback}\nThe right number is:"
VERDICT = "verifier:reveal"
CONTROL = "constant:The attempt was read."

ATTEMPTS = 2
"""Attempts at each question of the school: a right one and a wrong one, beside the bare question."""

SUMS = range(2, 19)


def measure(experiment: Experiment, folder: Path) -> Finding:
    """School, then SDPO from there with either feedback; held-out accuracy of bare questions."""
    assert experiment.first is not None
    school = folder / "school.jsonl"
    write_school(school, model_of(experiment))
    with gateway_as_endpoint(folder / "gateway", models=(model_of(experiment),)):
        lessons = train(experiment.first.path, [*experiment.first.settings, f"data.source={school}"], folder / "school")
        shared = [
            *experiment.settings,
            f"model.initial_artifact_id={lessons.summary['artifact_id']}",
        ]
        verifier = train(experiment.path, [*shared, f"feedback={VERDICT}"], folder / "verifier")
        control = train(experiment.path, [*shared, f'feedback="{CONTROL}"'], folder / "control")
    after, after_control = verifier.summary["accuracy_after"], control.summary["accuracy_after"]
    return Finding(
        figures={
            "before": verifier.summary["accuracy_before"],
            "after, verifier": after,
            "after, constant": after_control,
            "cycles": verifier.summary["cycles"],
        },
        curve=verifier.curve("reward_mean"),
        met=after > after_control and after > verifier.summary["accuracy_before"],
    )


def write_school(path: Path, model: str) -> None:
    """Sums of the training side: bare, and with a right and with a wrong attempt and the verifier's verdict on it."""
    import models

    lessons = asyncio.run(_lessons(Renderer(models.resolve(model), "chatml")))
    rows = [{"messages": list(item.messages), "answer": item.answer, "id": item.id} for item in lessons]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


async def _lessons(renderer: Renderer) -> list[Example]:
    questions, _ = one_digit()
    groups = [_attempt(example, number, renderer) for number in range(ATTEMPTS) for example in questions]
    source = FeedbackSource("verifier", reward=RewardTerm("number"), reveal=True)
    async with RewardPool() as pool:
        said = await feedback_for(groups, source, renderer=renderer, pool=pool)
    with_verdict = [
        replace(group.example, messages=feedback_prompt(group.example, group.texts[0], verdict or "", TEMPLATE))
        for group, (verdict,) in zip(groups, said, strict=True)
    ]
    return [*questions, *with_verdict]


def _attempt(example: Example, number: int, renderer: Renderer) -> Group:
    """A right attempt or, for odd numbers, another sum, which no version of a random generator can change."""
    right = int(example.answer or "")
    others = [total for total in SUMS if total != right]
    digest = sha256(f"school/{example.id}/{number}".encode()).digest()
    said = others[digest[0] % len(others)] if number % 2 else right
    group = Group(
        replace(example, id=f"{example.id}/{number}"),
        {"prompt": {"token_ids": []}},
        [{"tokens": renderer.completion_tokens(str(said)), "stop_reason": "stop"}],
    )
    group.rewards = [float(said == right)]
    group.completions(renderer)
    return group


EXPERIMENTS = tuple(
    Experiment(
        f"sdpo, seed {seed}",
        "feedback",
        "sdpo.toml",
        (
            f"seed={seed}",
            "cycles=16",
            "save_every=8",
            "sampling.max_tokens=4",
            "advantage_clip=3",
            f"template={json.dumps(TEMPLATE)}",
        ),
        measure,
        first=Stage(
            "sft.toml",
            (f"seed={seed}", "cycles=11", "save_every=11", "batch_size=16", "evaluation.enabled=false"),
        ),
    )
    for seed in range(2)
)
