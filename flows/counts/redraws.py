"""DAPO's tokens beside its first draws: for groups without a signal, and for prompts that are not sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from flows.checks.prepared import Prepared
from flows.config import DapoConfig
from flows.counts.draws import Draws
from flows.counts.example import ExampleTokens
from flows.counts.ledger_tokens import NOTHING, Tokens
from flows.counts.prompts import Case
from tasks.examples import Example


def in_place_of_unsent(uses: list[tuple[Tokens, int]], case: Case) -> list[tuple[Tokens, int]]:
    """DAPO draws another prompt where one fills the context, and all cycles' behind it are others: at most the longest.

    Typically such are as long as those that are sent.
    """
    sent = [(tokens, times) for tokens, times in uses if tokens.counted]
    places, of_sent = (sum(times for _, times in some) for some in (uses, sent))
    if of_sent in (0, places):
        return uses
    if case == "most":
        return [(max((tokens for tokens, _ in sent), key=lambda tokens: tokens.counted), places)]
    return [(tokens * (places / of_sent), times) for tokens, times in sent]


def drawn_again(examples: ExampleTokens, mean: Tokens, draws: Draws, completion: float, case: Case) -> Tokens:
    """DAPO's further draws of a cycle: typically of the mean prompt, at most of the longest one.

    At most all are kept; typically what is trained of them stands in the share of the first draws that is.
    """
    config = examples.prepared.config
    if not isinstance(config, DapoConfig) or not draws.operations:
        return NOTHING
    one = mean
    if case == "most":
        within_reach = (
            examples.trained(example, completion, case) for example in _within_reach(examples.prepared, draws)
        )
        one = max(within_reach, key=lambda tokens: tokens.prefill)
    times, groups = draws.operations, draws.completions / config.group_size
    kept = groups if case == "most" else 0.0
    return replace(
        one * groups,
        prefill=(one.prefill - one.frozen) * times + one.frozen * kept,
        trained=one.trained * kept,
        frozen=one.frozen * kept,
    )


def _within_reach(prepared: Prepared, draws: Draws) -> Sequence[Example]:
    """The examples that may be drawn: a group without a signal gives its place to the next one of the data."""
    train, config = prepared.data.train, prepared.config
    reach = ceil(config.cycles * (config.groups_per_cycle + draws.operations))  # type: ignore[attr-defined] # DAPO's
    return train if reach >= len(train) else [prepared.example_at(place) for place in range(reach)]
