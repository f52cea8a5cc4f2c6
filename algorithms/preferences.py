"""Preference data: rows of chosen and rejected answers, made pairs by their id.

A file of preferences is cleaned row by row, and one bad row between good ones must not shift the rest: pairing by
place in the file (even rows chosen, odd rows rejected) would set every later chosen answer against a stranger's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from algorithms.datums import Datum, sft_datum
from algorithms.reasons import EMPTY, IDENTICAL, PROMPTS_DIFFER, TOO_LONG, UNPAIRED

Side = Literal["chosen", "rejected"]


@dataclass(frozen=True, slots=True)
class Row:
    """One answer of a pair, as token ids; `problem` names what is already known to be wrong with it."""

    id: str
    side: Side
    prompt_tokens: Sequence[int]
    completion_tokens: Sequence[int]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one prompt, as `cross_entropy` datums with weight 1 on the answer's tokens."""

    id: str
    chosen: Datum
    rejected: Datum


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs in the order their first row came in, and how many *pairs* were dropped for which reason."""

    pairs: list[Pair]
    dropped_by_reason: dict[str, int]


def pair_up(rows: Iterable[Row], *, max_sequence_tokens: int | None = None) -> Pairs:
    """Join chosen and rejected rows by id; a row that cannot be used drops its whole pair.

    Reasons: the row's own `problem`, "unpaired" (the other side is missing), "empty_completion", "too_long" (prompt and
    completion exceed `max_sequence_tokens`), "prompts_differ", "identical" (both answers are the same: no gradient).

    Raises:
        ValueError: an id with two rows of one side, an unknown side, or an empty prompt.
    """
    by_id: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.side not in ("chosen", "rejected"):
            raise ValueError(f"side of row {row.id!r} is {row.side!r}: it must be 'chosen' or 'rejected'")
        sides = by_id.setdefault(row.id, {})
        if row.side in sides:
            raise ValueError(f"id {row.id!r} has two {row.side} rows: give each pair an id of its own")
        sides[row.side] = row
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair_id, sides in by_id.items():
        reason = _problem(sides, max_sequence_tokens)
        if reason:
            dropped[reason] += 1
        else:
            pairs.append(Pair(pair_id, _datum(sides["chosen"]), _datum(sides["rejected"])))
    return Pairs(pairs, dict(dropped))


def pair_data(pairs: Sequence[Pair]) -> list[Datum]:
    """The 2·B datums of B pairs, chosen then rejected, pair after pair: what `forward` is asked about."""
    return [datum for pair in pairs for datum in (pair.chosen, pair.rejected)]


def _datum(row: Row) -> Datum:
    return sft_datum(row.prompt_tokens, row.completion_tokens)


def _problem(sides: dict[str, Row], limit: int | None) -> str | None:
    """The first reason for which a pair cannot be used, or None."""
    for row in sides.values():
        if row.problem:
            return row.problem
    if len(sides) < 2:
        return UNPAIRED
    chosen, rejected = sides["chosen"], sides["rejected"]
    if list(chosen.prompt_tokens) != list(rejected.prompt_tokens):
        return PROMPTS_DIFFER
    for row in (chosen, rejected):
        if not row.completion_tokens:
            return EMPTY
        if limit is not None and len(row.prompt_tokens) + len(row.completion_tokens) > limit:
            return TOO_LONG
    return IDENTICAL if list(chosen.completion_tokens) == list(rejected.completion_tokens) else None
