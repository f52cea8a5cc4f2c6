"""The tokens of a run as the ledger counts them: kind by kind, run by run, example by example.

`sample` reads its prompt once, however many completions it draws; `logprobs` and `forward` read what they are given;
`forward_backward` trains its datums' inputs, which are the prompt and all but the last token of what follows. The
data's order is seeded, so it is known how often each prompt comes; how long completions are is an argument here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil
from operator import add

from flows.checks.planned import planned_measurements
from flows.checks.planned_cost import NOTHING, Tokens
from flows.checks.planned_draws import ONCE, Draws
from flows.checks.planned_example import Costs
from flows.checks.planned_prompts import Case
from flows.checks.prepared import Prepared
from flows.config import DapoConfig, TttConfig
from tasks.examples import Example


@dataclass(frozen=True, slots=True)
class Counted:
    """A run's two kinds of parts."""

    cycles: Tokens
    measurements: Tokens


def planned_tokens(prepared: Prepared, *, completion_tokens: float) -> dict[str, float]:
    """Tokens of a whole run, measurements included, by the ledger's words; arguments as `count`."""
    counted = count(Costs(prepared), completion_tokens=completion_tokens)
    tokens = counted.cycles + counted.measurements
    return {"prefill": tokens.prefill, "sampled": tokens.sampled, "trained": tokens.trained}


def count(costs: Costs, *, completion_tokens: float, draws: Draws = ONCE, case: Case = "typical") -> Counted:
    """The tokens of a run.

    Args:
        costs: of its examples.
        completion_tokens: of every completion; capped at `sampling.max_tokens`, and at the context its prompt leaves.
        draws: what is drawn again, and how much of all is trained.
        case: how much what is not known is taken to be.
    """
    config = costs.prepared.config
    cycles = of_cycles(costs, range(config.cycles), completion_tokens=completion_tokens, draws=draws, case=case)
    measurements = planned_measurements(config, len(costs.prepared.heldout))
    measured = of_measurement(costs, completion_tokens=completion_tokens) if measurements else NOTHING
    return Counted(cycles, measured * measurements)


def of_cycles(costs: Costs, cycles: range, *, completion_tokens: float, draws: Draws, case: Case) -> Tokens:
    """The tokens of some of a run's cycles, numbered from 0; the other arguments are `count`'s."""
    uses = [(costs.trained(one, completion_tokens, how), times) for one, times, how in _uses(costs, cycles, case)]
    drawn = total(cost * times for cost, times in uses)
    mean = drawn * (1 / sum(times for _, times in uses))
    again = _drawn_again(costs, mean, draws, completion_tokens, case) * len(cycles)
    return drawn.put_to_use(draws.trained) + again


def drawn_in_cycle(costs: Costs, cycle: int, *, completion_tokens: float) -> Tokens:
    """The completions of a cycle as they are posted, all at once, before anything is made of them."""
    uses = _uses(costs, range(cycle, cycle + 1), "least")
    return total(costs.drawn(one, completion_tokens, how) * times for one, times, how in uses)


def of_measurement(costs: Costs, *, completion_tokens: float) -> Tokens:
    """The tokens of one measurement."""
    return total(costs.measured(one, completion_tokens) for one in costs.prepared.heldout)


def _uses(costs: Costs, cycles: range, case: Case) -> Iterator[tuple[Example, int, Case]]:
    """Every example that is drawn, how often, and how to count it: whole epochs at once, what is beside them singly."""
    prepared, config, train = costs.prepared, costs.prepared.config, costs.prepared.data.train
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


def _drawn_again(costs: Costs, mean: Tokens, draws: Draws, completion: float, case: Case) -> Tokens:
    """DAPO's further draws of a cycle: typically of the mean prompt, at most of the longest one.

    At most all are kept; typically what is trained of them stands in the share of the first draws that is.
    """
    config = costs.prepared.config
    if not isinstance(config, DapoConfig) or not draws.operations:
        return NOTHING
    one = mean
    if case == "most":
        within_reach = (costs.trained(example, completion, case) for example in _within_reach(costs.prepared, draws))
        one = max(within_reach, key=lambda cost: cost.prefill)
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


def total(parts: Iterable[Tokens]) -> Tokens:
    """The sum."""
    return reduce(add, parts, NOTHING)
