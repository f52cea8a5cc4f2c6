"""What a plan assumes, in a sentence."""

from __future__ import annotations

from cli.plan_numbers import amount
from flows.counts.lengths import Source
from flows.plan.assumptions import Assumptions

YOURS = "; yours by --completion-tokens"
SOURCES: dict[Source, str] = {
    "half_of_max_tokens": f"half of sampling.max_tokens{YOURS}",
    "earlier_run": f"the mean of the earlier run {{run}}{YOURS}",
    "option": "by --completion-tokens",
    "ignore_eos": "sampling.max_tokens, for sampling.ignore_eos",
}


def completions_told(assumed: Assumptions) -> str | None:
    """How long sampled completions are taken to be, and why; None where none is sampled."""
    if assumed.completion_tokens is None or assumed.completion_tokens_source is None:
        return None
    why = SOURCES[assumed.completion_tokens_source].format(run=assumed.earlier_run)
    count = amount(assumed.completion_tokens)
    return f"Completions: {count} token{'' if count == '1' else 's'} each, {why}"
