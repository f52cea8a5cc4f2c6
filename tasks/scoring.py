"""Score what was sampled: one Prefect task a batch, whatever it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import rewards
from tasks.completion import Completion
from tasks.examples import Example
from tasks.rendering import Renderer
from tasks.rewards import Failures, RewardPool, RewardTerm
from tasks.run import Opaque


class Group:
    """The completions of one prompt, as sampled, and what each was worth (None: could not be scored)."""

    __slots__ = ("by_function", "example", "request", "rewards", "sequences", "texts")

    def __init__(self, example: Example, request: dict[str, Any], sequences: list[dict[str, Any]]) -> None:
        self.example = example
        self.request = request
        self.sequences = sequences
        self.texts: list[str] = []
        self.rewards: list[float | None] = []
        self.by_function: dict[str, list[float | None]] = {}

    @property
    def prompt_tokens(self) -> list[int]:
        """The prompt as it was sent."""
        tokens: list[int] = self.request["prompt"]["token_ids"]
        return tokens

    def read(self, renderer: Renderer) -> None:
        """Turn the completions' tokens into `texts`."""
        self.texts = [renderer.decode(sequence["tokens"]) for sequence in self.sequences]

    def completions(self, renderer: Renderer) -> list[Completion]:
        """What reward functions see: text, never token ids."""
        self.read(renderer)
        return [
            Completion(
                prompt=self.example.messages,
                text=text,
                token_count=len(sequence["tokens"]),
                finished=sequence["stop_reason"] == "stop",
                example=self.example,
            )
            for text, sequence in zip(self.texts, self.sequences, strict=True)
        ]

    def sample_rows(self) -> list[dict[str, Any]]:
        """Rows of a samples file: texts and rewards, for people to read."""
        return [
            {
                "id": self.example.id,
                "prompt": self.example.messages[-1]["content"],
                "answer": self.example.answer,
                "completion": text,
                "reward": reward,
                "tokens": len(sequence["tokens"]),
                "stop_reason": sequence["stop_reason"],
            }
            for text, reward, sequence in zip(
                self.texts, self.rewards or [None] * len(self.texts), self.sequences, strict=True
            )
        ]


class RewardError(ValueError):
    """A reward function that scores nothing at all; the message names the function, why, and how often."""


class Scored:
    """Groups with their rewards, and why some completions have none."""

    __slots__ = ("failures", "groups")

    def __init__(self, groups: list[Group], failures: Failures) -> None:
        self.groups = groups
        self.failures = failures


@task(task_run_name="score", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def score(renderer: Renderer, groups: Opaque, terms: Sequence[RewardTerm], pool: RewardPool) -> Scored:
    """Give every completion of every group its reward; the pool's workers stay warm from batch to batch.

    Raises:
        ValueError: a reward function that does not exist or cannot be called as configured.
    """
    batch: list[Group] = groups.value
    completions = [completion for group in batch for completion in group.completions(renderer)]
    scores = await rewards.score(completions, terms, pool=pool)
    start = 0
    for group in batch:
        end = start + len(group.sequences)
        group.rewards = scores.total[start:end]
        group.by_function = {name: values[start:end] for name, values in scores.by_function.items()}
        start = end
    return Scored(batch, scores.failures)
