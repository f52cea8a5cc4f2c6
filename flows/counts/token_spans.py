"""The tokens of a run at least, typically and at most, as the ledger counts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from algorithms.spans import Span, Spans
from flows.checks.prepared import Prepared
from flows.counts.draws import draws_of
from flows.counts.end import fewest_cycles
from flows.counts.example import ExampleTokens
from flows.counts.ledger_tokens import Tokens
from flows.counts.lengths import Lengths
from flows.counts.prompts import Case
from flows.counts.spans import asks_about_all, may_send_nothing
from flows.counts.tokens import Counted, count

CASES: tuple[Case, Case, Case] = ("least", "typical", "most")


@dataclass(frozen=True, slots=True)
class TokenSpans:
    """Of a run, or of its cycles alone.

    Args:
        by_kind: "prefill", "sampled", "trained".
        frozen: of the prefill, what a teacher or a reference reads.
    """

    by_kind: Spans
    frozen: Span


def tokens_of(prepared: Prepared, length: Lengths) -> tuple[TokenSpans, TokenSpans]:
    """The tokens of a whole run, measurements among them; and those of its cycles alone.

    At least: every completion one token long, no group drawn again; where rewards decide it, nothing trained; and a run
    that ends as soon as a rule of `[stop]` may have it.
    """
    examples, config = ExampleTokens(prepared), prepared.config

    def counted(case: Case, tokens: float, cycles: int = config.cycles) -> Counted:
        found = count(examples, completion_tokens=tokens, draws=draws_of(config, case), case=case, cycles=cycles)
        return replace(found, cycles=at_least(prepared, found.cycles)) if case == "least" else found

    least, typical, most = map(counted, CASES, length.completion.values)
    soonest = fewest_cycles(config)
    ended = least if soonest == config.cycles else counted("least", length.completion.least, soonest)
    return (
        _spans((ended, typical, most), lambda one: one.cycles + one.measurements),
        _spans((least, typical, most), lambda one: one.cycles),
    )


def at_least(prepared: Prepared, cycles: Tokens) -> Tokens:
    """What is left where no reward tells two completions apart."""
    if may_send_nothing(prepared.algorithm, prepared.config):
        cycles = replace(cycles, trained=0.0)
    if asks_about_all(prepared.config):
        return cycles
    return replace(cycles, prefill=cycles.prefill - cycles.frozen, frozen=0.0)


def _spans(counted: tuple[Counted, Counted, Counted], part: Callable[[Counted], Tokens]) -> TokenSpans:
    least, typical, most = map(part, counted)
    kinds = ("prefill", "sampled", "trained", "frozen")
    spans = {kind: _in_order(*(getattr(one, kind) for one in (least, typical, most))) for kind in kinds}
    frozen = spans.pop("frozen")
    return TokenSpans(spans, frozen)


def _in_order(least: float, typical: float, most: float) -> Span:
    """Means may be off by a last bit."""
    return Span(min(least, typical), typical, max(typical, most))
