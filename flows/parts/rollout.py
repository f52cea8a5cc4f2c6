"""The parts of a cycle that algorithms with rollouts share: draw groups, score them, make a batch, describe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from algorithms import (
    NO_TERMS,
    Batch,
    Estimate,
    KlPenalty,
    LossTerms,
    build_batch,
    request_seed,
)
from algorithms.kl import TokenPenalty
from flows.config import GroupConfig, RolloutConfig, SampledConfig, SdpoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycle
from flows.parts.record import describe
from flows.teacher import reference_logprobs
from tasks.examples import Example
from tasks.operations import current_sampler, in_order, sample
from tasks.rewards import Failures
from tasks.run import Opaque, Run
from tasks.scoring import Group, score


async def draw(
    attempt: Attempt,
    policy: Run,
    examples: Sequence[Example],
    seeds: Sequence[int],
    *,
    sizes: Sequence[int],
    temperature: float,
    label: str = "sample group {place}",
) -> list[Group | None]:
    """Draw a group for every example at once, one operation a group.

    A prompt that fills the context is never sent; its place holds None.
    """
    sampler_id = await current_sampler(policy)
    requests = [
        attempt.inputs.sample_request(example, seed=seed, num_samples=size, temperature=temperature)
        for example, seed, size in zip(examples, seeds, sizes, strict=True)
    ]
    answers = await in_order(
        *(
            sample(policy, sampler_id, request, label.format(place=place))
            for place, request in enumerate(requests, 1)
            if request is not None
        )
    )
    answered = iter(answers)
    return [
        None if request is None else Group(example, request, next(answered).result["sequences"])
        for example, request in zip(examples, requests, strict=True)
    ]


async def draw_groups(
    cycle: Cycle, examples: Sequence[Example], sizes: Sequence[int], *, round_: int = 0
) -> list[Group | None]:
    """Groups for training from the current weights; no two groups or rounds of a run share a seed."""
    config = cycle.attempt.config
    seeds = [request_seed(config.seed, cycle.number, place, round_) for place in range(len(examples))]
    drawn = await draw(
        cycle.attempt,
        cycle.policy,
        examples,
        seeds,
        sizes=sizes,
        temperature=config.sampling.temperature,
        label=f"resample {{place}}, round {round_}" if round_ else "sample group {place}",
    )
    cycle.metrics["prompts_skipped"] = cycle.metrics.get("prompts_skipped", 0) + drawn.count(None)
    return drawn


async def score_groups(cycle: Cycle, groups: list[Group]) -> Failures:
    """Reward every completion, in place; the reasons why some have none.

    Whether too many have none is `require_some_scored`'s to say, of everything a cycle has drawn.
    """
    attempt = cycle.attempt
    if not attempt.inputs.rewards:
        for group in groups:
            group.read(attempt.inputs.renderer)
            group.rewards = [None] * len(group.sequences)
        return Failures()
    scored = await score(attempt.inputs.renderer, Opaque(groups), attempt.inputs.rewards, attempt.pool)
    return scored.failures


async def scored_groups(cycle: Cycle, config: SampledConfig | SdpoConfig) -> list[Group]:
    """The groups of a training cycle, drawn from a snapshot of the current weights, and scored."""
    examples = cycle.attempt.inputs.batch(cycle.number, config.groups_per_cycle)
    drawn = await draw_groups(cycle, examples, [config.group_size] * len(examples))
    groups = [group for group in drawn if group is not None]
    describe(cycle, groups, await score_groups(cycle, groups))
    return groups


async def sample_groups(cycle: Cycle, config: RolloutConfig) -> Rollouts:
    """`scored_groups`; with a KL penalty each sequence also carries the reference's log-probs."""
    groups = await scored_groups(cycle, config)
    if isinstance(config, GroupConfig) and config.kl.coef:
        await reference_logprobs(cycle, groups)
    return Rollouts(cycle, config, groups)


class Rollouts:
    """A cycle's scored groups, on their way into a batch."""

    __slots__ = ("_config", "_cycle", "groups")

    def __init__(self, cycle: Cycle, config: RolloutConfig, groups: Sequence[Group]) -> None:
        self._cycle = cycle
        self._config = config
        self.groups = groups

    def batch(
        self,
        estimate: Estimate,
        *,
        terms: LossTerms = NO_TERMS,
        penalty: TokenPenalty | None = None,
        whiten: bool = False,
        scale: Literal["advantages", "weights"] = "advantages",
    ) -> Batch:
        """The datums of the optimizer step, by the algorithm's `estimate` and the configuration's options.

        `penalty` and `whiten` are for algorithms with a KL term of their own; the others have `[kl]` and `whiten`.
        """
        config = self._config
        kl: KlPenalty | TokenPenalty | None = penalty
        if isinstance(config, GroupConfig):
            kl, whiten = config.kl_penalty(), config.whiten
        batch = build_batch(
            self.groups,
            estimate,
            kl=kl,
            whiten=whiten,
            terms=terms,
            aggregation=config.aggregation,
            constant_length=config.sampling.max_tokens,
            scale=scale,
        )
        self._cycle.count_dropped(batch.dropped)
        silent = sum(group.zero_signal and not group.data for group in batch.groups)
        self._cycle.metrics.setdefault("zero_signal_fraction", silent / len(batch.groups) if batch.groups else 0.0)
        if batch.kl is not None:
            self._cycle.metrics |= {"kl_reference": batch.kl.k1, "kl_reference_k3": batch.kl.k3}
        return batch
