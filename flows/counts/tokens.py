"""The tokens of a run as the ledger counts them: kind by kind, run by run, example by example.

`sample` reads its prompt once, however many completions it draws; `logprobs` and `forward` read what they are given;
`forward_backward` trains its datums' inputs, which are the prompt and all but the last token of what follows. The
data's order is seeded, so it is known how often each prompt comes; how long completions are is an argument here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flows.checks.prepared import Prepared
from flows.config import DapoConfig, TttConfig
from flows.counts.draws import ONCE, Draws
from flows.counts.example import ExampleTokens
from flows.counts.ledger_tokens import NOTHING, Tokens, total
from flows.counts.operations import planned_measurements
from flows.counts.prompts import Case
from flows.counts.redraws import drawn_again, in_place_of_unsent
from tasks.examples import Example


@dataclass(frozen=True, slots=True)
class Counted:
    """A run's two kinds of parts."""

    cycles: Tokens
    measurements: Tokens


def planned_tokens(prepared: Prepared, *, completion_tokens: float) -> dict[str, float]:
    """Tokens of a whole run, measurements included, by the ledger's words; arguments as `count`."""
    counted = count(ExampleTokens(prepared), completion_tokens=completion_tokens)
    tokens = counted.cycles + counted.measurements
    return {"prefill": tokens.prefill, "sampled": tokens.sampled, "trained": tokens.trained}


def count(
    examples: ExampleTokens,
    *,
    completion_tokens: float,
    draws: Draws = ONCE,
    case: Case = "typical",
    cycles: int | None = None,
) -> Counted:
    """The tokens of a run.

    Args:
        examples: the run's, and what each takes.
        completion_tokens: of every completion; capped at `sampling.max_tokens`, and at the context its prompt leaves.
        draws: what is drawn again, and how much of all is trained.
        case: how much what is not known is taken to be.
        cycles: after so many it ends; default: all.
    """
    config = examples.prepared.config
    if cycles is not None:
        config = config.model_copy(update={"cycles": cycles})
    trained = of_cycles(examples, range(config.cycles), completion_tokens=completion_tokens, draws=draws, case=case)
    measurements = planned_measurements(config, len(examples.prepared.heldout))
    measured = of_measurement(examples, completion_tokens=completion_tokens) if measurements else NOTHING
    return Counted(trained, measured * measurements)


def of_cycles(examples: ExampleTokens, cycles: range, *, completion_tokens: float, draws: Draws, case: Case) -> Tokens:
    """The tokens of some of a run's cycles, numbered from 0; the other arguments are `count`'s."""
    uses = [(examples.trained(one, completion_tokens, how), times) for one, times, how in _uses(examples, cycles, case)]
    if isinstance(examples.prepared.config, DapoConfig) and case != "least":
        uses = in_place_of_unsent(uses, case)
    drawn = total(tokens * times for tokens, times in uses)
    mean = drawn * (1 / sum(times for _, times in uses))
    again = drawn_again(examples, mean, draws, completion_tokens, case) * len(cycles)
    return drawn.put_to_use(draws.trained) + again


def drawn_in_cycle(examples: ExampleTokens, cycle: int, *, completion_tokens: float) -> Tokens:
    """The completions of a cycle as they are posted, all at once, before anything is made of them."""
    uses = _uses(examples, range(cycle, cycle + 1), "least")
    return total(examples.drawn(one, completion_tokens, how) * times for one, times, how in uses)


def of_measurement(examples: ExampleTokens, *, completion_tokens: float) -> Tokens:
    """The tokens of one measurement."""
    return total(examples.measured(one, completion_tokens) for one in examples.prepared.heldout)


def _uses(examples: ExampleTokens, cycles: range, case: Case) -> Iterator[tuple[Example, int, Case]]:
    """Every example that is drawn, how often, and how to count it: whole epochs at once, what is beside them singly."""
    prepared, config, train = examples.prepared, examples.prepared.config, examples.prepared.data.train
    if isinstance(config, TttConfig):
        problem, first = config.problem_of(train), cycles.start == 0
        # The first cycle has no solution to start from.
        yield problem, config.groups_per_cycle * first, "least"
        yield problem, config.groups_per_cycle * (len(cycles) - first), case
        return
    size = getattr(config, "groups_per_cycle", 0) or config.batch_size  # type: ignore[attr-defined] # one or the other
    place, end = cycles.start * size, cycles.stop * size
    while place < end:
        if place % len(train) == 0 and (epochs := (end - place) // len(train)):
            yield from ((example, epochs, case) for example in train)
            place += epochs * len(train)
        else:
            yield prepared.example_at(place), 1, case
            place += 1
