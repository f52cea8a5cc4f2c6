"""What dynamic sampling comes to on average, against simulated cycles, to four standard errors of their means."""

import random
from statistics import fmean, stdev

import pytest
from algorithm_samples import sequence

from algorithms import ResamplePolicy, retained
from algorithms.resampling_odds import expected_cycle

CYCLES = 2000


class Place:
    """A prompt of unknown difficulty, and the verdict on what has been drawn for it."""

    def __init__(self, chance: random.Random, policy: ResamplePolicy) -> None:
        self.solved, self.rewards = chance.random(), []
        self.verdict = retained([], [], policy)

    def draw(self, chance: random.Random, policy: ResamplePolicy, size: int) -> int:
        drawn = self.verdict.missing if self.rewards and self.verdict.missing else size
        self.rewards += [float(chance.random() < self.solved) for _ in range(drawn)]
        self.verdict = retained([sequence(1)] * len(self.rewards), self.rewards, policy)
        return drawn


def a_cycle(chance, policy, groups, size, on_exhausted):
    """Further operations and completions; completions that are trained on."""
    places = [Place(chance, policy) for _ in range(groups)]
    operations = completions = 0
    for round_ in range(policy.max_rounds + 1):
        pending = [number for number, place in enumerate(places) if not place.verdict.complete]
        for number in pending[: policy.max_operations - operations] if round_ else pending:
            if places[number].verdict.zero_signal and policy.zero_signal == "next_prompt":
                places[number] = Place(chance, policy)
            drawn = places[number].draw(chance, policy, size)
            if round_:
                operations, completions = operations + 1, completions + drawn
    complete = [len(place.verdict.sequences) for place in places if place.verdict.complete]
    whole = len(complete) == groups or on_exhausted == "train_partial"
    return operations, completions, sum(complete) if whole else 0


def policy_of(target, rounds, limit, zero_signal):
    return ResamplePolicy(
        target_group_size=target, max_rounds=rounds, max_operations=limit, zero_signal=zero_signal, drop_overlong=False
    )


@pytest.mark.parametrize("on_exhausted", ["skip", "train_partial"])
@pytest.mark.parametrize(
    ("groups", "size", "policy"),
    [
        pytest.param(2, 3, policy_of(3, 1, 32, "next_prompt"), id="one round"),
        pytest.param(4, 3, policy_of(3, 2, 32, "next_prompt"), id="two rounds"),
        pytest.param(4, 4, policy_of(6, 3, 32, "next_prompt"), id="a larger target"),
        pytest.param(3, 4, policy_of(6, 3, 32, "same_prompt"), id="a larger target of the same prompt"),
        pytest.param(4, 4, policy_of(4, 3, 3, "next_prompt"), id="operations run out"),
        pytest.param(3, 6, policy_of(4, 2, 2, "same_prompt"), id="a smaller target, operations run out"),
        pytest.param(4, 4, policy_of(4, 0, 0, "next_prompt"), id="nothing is drawn again"),
    ],
)
def test_the_mean_cycle_is_that_of_simulated_ones(groups, size, policy, on_exhausted):
    chance = random.Random(0)
    cycles = [a_cycle(chance, policy, groups, size, on_exhausted) for _ in range(CYCLES)]
    draws, completions, trained = zip(*cycles, strict=True)
    expected = expected_cycle(policy, groups, size, on_exhausted)
    steps = [float(bool(one)) for one in trained]
    # What is as likely as 3 in so many cycles may have been seen in none.
    pairs = (expected.draws, draws), (expected.completions, completions), (expected.steps, steps)
    for mean, found in (*pairs, (expected.trained, trained)):
        assert mean == pytest.approx(fmean(found), abs=4 * stdev(found) / CYCLES**0.5 + 3 / CYCLES)


def test_of_a_run_that_does_not_fail_every_cycle_takes_a_step():
    policy = ResamplePolicy(target_group_size=4, max_rounds=1, max_operations=8)
    assert expected_cycle(policy, 2, 4, "fail").steps == 1
    assert expected_cycle(policy, 2, 4, "fail").trained == pytest.approx(8)
