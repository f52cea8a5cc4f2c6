"""What a run was billed for, in words: all attempts together, what of it was done again, and the money.

All of it is read from a summary: of one algorithm's run, or of a pipeline's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.money import money
from tasks.stopped import planned_of

Summary = Mapping[str, Any]

LONGER = 3
"""How many times as long as planned completions are before it is said."""

AGAIN = {"operations": "by_kind", "tokens": "tokens_by_kind"}
"""Where `redone` has what was billed beyond the summary's own operations and tokens."""


def billed(summary: Summary, part: str) -> Counter[str]:
    """Every one of its "operations" or "tokens" that was billed, by kind, whichever attempt it was of."""
    again: Mapping[str, int] = (summary.get("redone") or {}).get(AGAIN[part], {})
    return Counter(summary.get(part, {})) + Counter(again)


def bill_told(summary: Summary) -> str:
    """In a line: how much was billed."""
    tokens = ", ".join(f"{count:,} {kind}" for kind, count in sorted(billed(summary, "tokens").items()))
    return f"{counted(billed(summary, 'operations').total(), 'operation')}; tokens: {tokens or 'none'}"


def again_told(summary: Summary) -> str | None:
    """In a line: how much of it was done more than once; None where nothing was."""
    redone = summary.get("redone", {"operations": 0, "tokens": 0})
    if redone is None:
        return "and what was done again, if anything was: the endpoint could not be asked"
    amounts = [counted(redone[part], part.removesuffix("s")) for part in AGAIN if redone[part]]
    if not amounts:
        return None
    return f"of which {', '.join(amounts)}: blocks that were begun and not saved, or another export"


def cost_told(summary: Summary) -> str | None:
    """In a line: the money, beside what was planned; None where no prices are known."""
    cost = summary.get("cost")
    if not cost:
        return None
    told, planned = f"{money(cost['billed'])} {cost['currency']} billed", cost.get("planned")
    if not planned:
        return told
    whole = planned_of(summary)
    of_what = f"planned for {whole}" if whole else "planned"
    return f"{told}; {of_what}: typically {money(planned['typical'])}, at most {money(planned['most'])}"


def longer_told(summary: Summary) -> str | None:
    """In a sentence: that completions were much longer than planned; None where they were not."""
    length = summary.get("completion_tokens")
    if not length or length["mean"] <= LONGER * length["planned"]:
        return None
    mean = round(length["mean"])
    return (
        f"Completions were longer than planned: {mean:,} tokens on average, planned {length['planned']:,.0f}; "
        f"`whitney plan CONFIG --completion-tokens {mean}` says so next time"
    )


def bill_markdown(summary: Summary) -> str:
    """The same as a list, for a page."""
    lines: Iterator[tuple[str, str | None]] = iter(
        [("Billed", bill_told(summary)), ("", again_told(summary)), ("Cost", cost_told(summary))]
    )
    return "\n".join(f"- {name + ': ' if name else ''}{told}" for name, told in lines if told)


def counted(count: int, what: str) -> str:
    """As people say it: 1 operation, 1,200 operations."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
