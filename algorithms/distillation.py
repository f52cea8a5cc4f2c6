"""Learning from a teacher's log-probs of the student's own tokens: a signal per token, without a reward.

The student samples; the teacher (another model, or the same one with a better-informed prompt) says how likely it would
have found each token. student_lp − teacher_lp is the single-sample estimate of the reverse KL(student ‖ teacher); its
opposite, used as a token's advantage, pulls the student to the teacher wherever the student goes. Source:
arXiv 2306.13649.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.advantages import Advantages, all_zero
from algorithms.datums import Datum, rl_datum, tensor
from algorithms.groups import GroupData
from algorithms.kl import same_length
from algorithms.reasons import ZERO_SIGNAL
from algorithms.teacher_answers import completion_logprobs, completion_topk, unusable

__all__ = ["TeacherSequences", "completion_logprobs", "completion_topk", "distillation_group", "reverse_kl"]

TeacherSequences = Sequence[Mapping[str, Any]]
"""Sampled completions `{"tokens", "logprobs", "teacher_logprobs"}`: one teacher log-prob per completion token; None or
absent where the teacher could not be asked (no feedback on this attempt, a context that is full)."""


def distillation_group(
    prompt_tokens: Sequence[int],
    sequences: TeacherSequences,
    *,
    kl_coef: float = 1.0,
    discount: float = 0.0,
    advantage_clip: float | None = None,
    skip_first: int = 0,
) -> GroupData:
    """The `rl_datum`s of a prompt's completions with A_t = kl_coef·(teacher_lp − student_lp); a group of one is fine.

    Not sent, and counted: an empty completion; one the teacher was not asked about ("no_teacher"); one without a token
    that teacher and student judge differently ("zero_signal"). `advantages` of the result holds completions' means.

    Args:
        prompt_tokens: the *student's* prompt, whatever the teacher was shown.
        sequences: G completions.
        kl_coef: scale of the signal.
        discount: γ in [0, 1]: with Σ_{k≥t} γ^(k−t)·d_k a token answers for what it led to; 0 judges it alone.
        advantage_clip: the bound c of −c … +c, applied last; None does not clip.
        skip_first: so many leading tokens are not trained: weight 0 (SDFT takes 3: the teacher's prompt colours how an
            answer opens).

    Raises:
        ValueError: lists that do not pair token by token (their lengths are named), or an option out of its range.
    """
    signal = _Signal(kl_coef, discount, advantage_clip, skip_first)
    data: list[Datum] = []
    means: Advantages = []
    dropped: Counter[str] = Counter()
    for sequence in sequences:
        reason = unusable(sequence, "teacher_logprobs")
        per_token = [] if reason else signal.of(sequence)
        means.append(None if reason else math.fsum(per_token) / len(per_token))
        if reason or all_zero(per_token):
            dropped[reason or ZERO_SIGNAL] += 1
            continue
        tokens, logprobs = sequence["tokens"], sequence["logprobs"]
        data.append(_without_first(rl_datum(prompt_tokens, tokens, logprobs, per_token), len(tokens), skip_first))
    return GroupData(data, means, dict(dropped), zero_signal=not data and dropped[ZERO_SIGNAL] > 0)


def reverse_kl(sequences: TeacherSequences) -> float:
    """Mean of student_lp − teacher_lp in nats per token, over all the tokens a teacher judged: the curve to watch.

    An estimate from samples: it may be a little below 0 where the two agree. NaN where no token was judged.

    Raises:
        ValueError: lists that do not pair token by token.
    """
    differences: list[float] = []
    for sequence in sequences:
        if unusable(sequence, "teacher_logprobs") is None:
            differences += [-gap for gap in _gaps(sequence)]
    return math.fsum(differences) / len(differences) if differences else math.nan


def _without_first(datum: Datum, completion_length: int, skip_first: int) -> Datum:
    """The datum with weight 0 on the first tokens of its completion, so that means do not count them either."""
    if not skip_first:
        return datum
    inputs = datum["loss_inputs"]
    weights = list(inputs["weights"]["values"])
    start = len(weights) - completion_length
    weights[start : start + skip_first] = [0.0] * skip_first
    return {**datum, "loss_inputs": {**inputs, "weights": tensor("float32", weights)}}


@dataclass(frozen=True, slots=True)
class _Signal:
    """From a completion's log-probs to its per-token advantages; the fields are `distillation_group`'s arguments."""

    kl_coef: float
    discount: float
    advantage_clip: float | None
    skip_first: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount is {self.discount}: it must be in [0, 1]")
        if self.advantage_clip is not None and not self.advantage_clip > 0:
            raise ValueError(f"advantage_clip is {self.advantage_clip}: it must be > 0, or None")
        if self.skip_first < 0:
            raise ValueError(f"skip_first is {self.skip_first}: it must be ≥ 0")

    def of(self, sequence: Mapping[str, Any]) -> list[float]:
        bound = math.inf if self.advantage_clip is None else self.advantage_clip
        following, backwards = 0.0, []
        for gap in reversed(_gaps(sequence)):
            following = self.kl_coef * gap + self.discount * following
            backwards.append(max(-bound, min(bound, following)))
        return [0.0 if place < self.skip_first else value for place, value in enumerate(reversed(backwards))]


def _gaps(sequence: Mapping[str, Any]) -> list[float]:
    student, teacher = sequence["logprobs"], sequence["teacher_logprobs"]
    same_length(tokens=sequence["tokens"], logprobs=student, teacher_logprobs=teacher)
    return [float(lp_teacher) - float(lp_student) for lp_student, lp_teacher in zip(student, teacher, strict=True)]
