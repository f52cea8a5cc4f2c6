"""From the groups of a cycle to the datums of one optimizer step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from algorithms import advantages as estimates
from algorithms.advantages import Estimate, Reward
from algorithms.aggregation import Aggregation, scale_data
from algorithms.datums import Datum
from algorithms.groups import GroupData, Sequences, group_datums, judge_group, reference_logprobs
from algorithms.kl import KlEstimate, KlPenalty, TokenPenalty, kl_estimate
from algorithms.loss_terms import NO_TERMS, LossTerms


class ScoredGroup(Protocol):
    """A prompt, the G completions drawn from it, and their rewards_G."""

    @property
    def prompt_tokens(self) -> Sequence[int]:
        """p ≥ 1 token ids."""
        ...

    @property
    def sequences(self) -> Sequences:
        """G completions as `build_group` takes them."""
        ...

    @property
    def rewards(self) -> Sequence[Reward]:
        """G rewards; None or NaN for a completion that could not be scored."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """An optimizer step's worth of data.

    `data`: every datum, scaled over the whole step. `groups`: what each group became, in the given order, its datums
    unscaled. `dropped`: completions that are not sent, by reason. `kl`: policy against reference over all tokens that
    have reference log-probs, dropped or not; None where there are none.
    """

    data: list[Datum]
    groups: list[GroupData]
    dropped: Counter[str]
    kl: KlEstimate | None


def build_batch(
    groups: Sequence[ScoredGroup],
    estimate: Estimate,
    *,
    kl: KlPenalty | TokenPenalty | None = None,
    whiten: bool = False,
    terms: LossTerms = NO_TERMS,
    aggregation: Aggregation = "sum",
    constant_length: int | None = None,
    scale: Literal["advantages", "weights"] = "advantages",
) -> Batch:
    """Judge every group, then make the step's datums of those that have something to teach.

    Args:
        groups: the cycle's groups.
        estimate: (rewards_G, lengths_G) → advantages_G, as `build_group` takes it.
        kl: a penalty against a reference, as `build_group` takes it. It is subtracted after whitening.
        whiten: bring the advantages of the whole step to mean 0 and std 1. A group without signal counts among them
            and is still not sent: one and the same advantage for a whole group teaches nothing.
        terms: bounds of the ratio, as `clip_range` gives them.
        aggregation: which mean is made of the sum; `scale_data` says how.
        constant_length: L in tokens, for aggregation "constant".
        scale: "weights" for a loss that is not linear in the advantage (dro, whose penalty has none).

    Raises:
        ValueError: as `build_group` and `scale_data`.
    """
    judged = [judge_group(group.sequences, group.rewards, estimate, kl) for group in groups]
    advantages = [one.advantages for one in judged]
    if whiten:
        advantages = estimates.whiten(advantages)
    built = [
        GroupData(
            group_datums(group.prompt_tokens, group.sequences, values, terms=terms, kl=kl) if one.sent else [],
            values,
            one.dropped_by_reason,
            one.zero_signal,
        )
        for group, one, values in zip(groups, judged, advantages, strict=True)
    ]
    dropped: Counter[str] = Counter()
    for one in built:
        dropped.update(one.dropped_by_reason)
    data = [datum for one in built for datum in one.data]
    scaled = scale_data(data, aggregation, constant_length=constant_length, field=scale)
    return Batch(scaled, built, dropped, divergence(groups))


def divergence(groups: Sequence[ScoredGroup]) -> KlEstimate | None:
    """KL of the policy that sampled the groups from the reference, in nats per token; None without a reference.

    Raises:
        ValueError: reference log-probs that are not one per token.
    """
    policy: list[float] = []
    reference: list[float] = []
    for group in groups:
        for place, sequence in enumerate(group.sequences):
            if sequence.get("reference_logprobs") is not None:
                policy += sequence["logprobs"]
                reference += reference_logprobs(sequence, place)
    return kl_estimate(policy, reference) if policy else None
