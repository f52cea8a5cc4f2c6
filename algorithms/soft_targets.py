"""Soft targets: where the student sampled one token, the teacher's K likeliest ones, each with its probability.

`cross_entropy` with (N, K) targets, −Σ_t Σ_k w_tk·log p(x_tk), has the gradient of the forward KL(teacher ‖ student)
over the K tokens. It needs no sampler log-probs and has less variance than one sampled token, and costs K times the
numbers on the wire. Source: SDFT, arXiv 2601.19897 (K = 20, the first 3 tokens skipped).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from algorithms.datums import Datum, tensor
from algorithms.groups import GroupData
from algorithms.reasons import ZERO_SIGNAL
from algorithms.teacher_answers import TopK, completion_topk, unusable

__all__ = ["completion_topk", "require_soft_targets", "soft_target_datum", "soft_target_group"]

TOP_K = 20
SOFT_TARGET_PROVIDERS = frozenset({"local", "tinker"})
NO_TARGET = (0, 0.0)  # a token id of every vocabulary, with weight 0


def require_soft_targets(provider: str) -> None:
    """Fail before anything is allocated where `cross_entropy` takes one target per position only.

    Raises:
        ValueError: the provider has no (N, K) targets; the ones that have are listed.
    """
    if provider not in SOFT_TARGET_PROVIDERS:
        raise ValueError(
            f"{provider} takes no (N, K) targets in cross_entropy: use the per-token advantages instead of top-K "
            f"soft targets, or one of {', '.join(sorted(SOFT_TARGET_PROVIDERS))}"
        )


def soft_target_datum(
    prompt_tokens: Sequence[int],
    completion_tokens: Sequence[int],
    topk_rows: Sequence[TopK],
    *,
    k: int = TOP_K,
    skip_first: int = 0,
) -> Datum:
    """A `cross_entropy` datum of N = p + n − 1 positions with (N, K) `target_tokens` and `weights`.

    Each completion row's weights are the teacher's probabilities of its k likeliest tokens, renormalised to sum to 1.
    Rows of the prompt, and of the first `skip_first` completion tokens, are zeros; a row of fewer than k entries is
    filled up with weight 0.

    Args:
        prompt_tokens: the student's p ≥ 1 tokens.
        completion_tokens: the n ≥ 1 tokens the student sampled.
        topk_rows: one `[[token, logprob], …]` per completion token, as `completion_topk` cuts them out.
        k: entries kept of each row.
        skip_first: leading completion tokens that are not trained.

    Raises:
        ValueError: an empty prompt or completion, numbers of rows and tokens that differ, k or skip_first out of range,
            a log-prob that is null, NaN or positive infinity, or a row without any possible token.
    """
    if not prompt_tokens or not completion_tokens:
        raise ValueError("prompt_tokens and completion_tokens need at least one token each")
    if len(topk_rows) != len(completion_tokens):
        raise ValueError(f"topk_rows has {len(topk_rows)} rows, completion_tokens has {len(completion_tokens)} tokens")
    if k < 1 or skip_first < 0:
        raise ValueError(f"k is {k} and skip_first is {skip_first}: they must be ≥ 1 and ≥ 0")
    untrained = [[NO_TARGET] * k]
    rows = untrained * (len(prompt_tokens) - 1 + min(skip_first, len(topk_rows)))
    rows += [_soft_row(row, k) for row in topk_rows[skip_first:]]
    return {
        "input": {"token_ids": [*prompt_tokens, *completion_tokens][:-1]},
        "loss_inputs": {
            "target_tokens": tensor("int64", [[token for token, _ in row] for row in rows]),
            "weights": tensor("float32", [[weight for _, weight in row] for row in rows]),
        },
    }


def soft_target_group(
    prompt_tokens: Sequence[int],
    sequences: Sequence[Mapping[str, Any]],
    *,
    k: int = TOP_K,
    skip_first: int = 0,
) -> GroupData:
    """The datums of a prompt's completions, whose `teacher_topk` holds one row per completion token, or is None.

    Not sent, and counted: an empty completion, "no_teacher", one that ends within the skipped tokens ("zero_signal").
    There is no advantage in soft targets: `advantages` of the result is all None. Scale `weights` to aggregate.

    Raises:
        ValueError: as `soft_target_datum`.
    """
    data: list[Datum] = []
    dropped: Counter[str] = Counter()
    for sequence in sequences:
        reason = unusable(sequence, "teacher_topk")
        if reason is None and len(sequence["tokens"]) <= skip_first:
            reason = ZERO_SIGNAL
        if reason:
            dropped[reason] += 1
            continue
        tokens, rows = sequence["tokens"], sequence["teacher_topk"]
        data.append(soft_target_datum(prompt_tokens, tokens, rows, k=k, skip_first=skip_first))
    none_sent = not data and dropped[ZERO_SIGNAL] > 0
    return GroupData(data, [None] * len(sequences), dict(dropped), zero_signal=none_sent)


def _soft_row(row: TopK, k: int) -> list[tuple[int, float]]:
    """The k likeliest (token, probability) of a row, likeliest first; probabilities sum to 1."""
    for token, logprob in row:
        if logprob is None or math.isnan(logprob) or logprob == math.inf:
            raise ValueError(f"a top-K row gives token {token} the log-prob {logprob}")
    likeliest = sorted(row, key=lambda entry: -entry[1])[:k]
    best = likeliest[0][1] if likeliest else -math.inf
    if best == -math.inf:
        raise ValueError("a top-K row has no token with a probability: it cannot be renormalised")
    odds = [math.exp(logprob - best) for _, logprob in likeliest]
    total = math.fsum(odds)
    kept = [(int(token), share / total) for (token, _), share in zip(likeliest, odds, strict=True)]
    return kept + [NO_TARGET] * (k - len(kept))
