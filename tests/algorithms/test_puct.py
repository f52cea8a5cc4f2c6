import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.puct import ROOT, Buffer, Solution, puct_scores


def children(parent, *rewards, cycle=0, name="s"):
    return [Solution.of(f"{name}-{parent.id}-{i}", reward, parent, cycle) for i, reward in enumerate(rewards)]


def grown(*rewards, **options):
    buffer = Buffer(**options)
    buffer.add(ROOT, children(ROOT, *rewards))
    return buffer


def test_the_score_is_the_formula_worked_by_hand():
    # Rewards 3 and 1, and the root: scale 2, ranks 3 2 1 of 6, T = 8, G = 4.
    scores = puct_scores([None, 1.0, 3.0], [3.0, 2.5, None], [8, 4, 0], 8, group_size=4, c=0.5)
    breadth = 0.5 * 2 * math.sqrt(1 + 8 / 4)
    assert scores == pytest.approx(
        [3.0 + breadth * (1 / 6) / 3, 2.5 + breadth * (2 / 6) / 2, 3.0 + breadth * (3 / 6) / 1]
    )


def test_rewards_that_are_all_equal_leave_the_choice_to_visits_and_age():
    scores = puct_scores([1.0, 1.0], [None, None], [4, 0], 4, group_size=4, c=1.0)
    assert scores == pytest.approx([1 + math.sqrt(2) * (2 / 3) / 2, 1 + math.sqrt(2) * (1 / 3)])


def test_a_new_buffer_starts_every_group_from_the_bare_problem():
    buffer = Buffer()
    assert buffer.select(3, group_size=8) == [ROOT, ROOT, ROOT]
    assert buffer.best is None


def test_an_expansion_leaves_its_best_two_and_no_text_twice():
    buffer = grown(0.1, 0.9, None, 0.5, math.nan)
    assert [solution.reward for solution in buffer.solutions] == [0.9, 0.5]
    again = [Solution.of(solution.text, 5.0, ROOT, 1) for solution in buffer.solutions]
    buffer.add(ROOT, [*again, Solution.of("", 9.0, ROOT, 1)])
    assert [solution.reward for solution in buffer.solutions] == [0.9, 0.5]
    twins = [Solution.of("twin", reward, ROOT, 2) for reward in (0.2, 0.7, 0.3)]
    buffer.add(ROOT, twins)
    assert [solution.reward for solution in buffer.solutions] == [0.9, 0.5, 0.7]


def test_a_full_buffer_lets_the_lowest_go_the_youngest_of_equals_first():
    buffer = grown(0.5, 0.4, capacity=2)
    buffer.add(ROOT, children(ROOT, 0.4, 0.9, name="t"))
    assert [solution.reward for solution in buffer.solutions] == [0.5, 0.9]
    buffer.add(ROOT, children(ROOT, 0.5, name="u"))
    assert [solution.text[0] for solution in buffer.solutions] == ["s", "t"]


def test_failed_attempts_count_as_visits_and_never_as_solutions():
    buffer = grown(None, math.nan)
    assert buffer.solutions == []
    assert buffer.rollouts == 2
    assert buffer.select(1, group_size=2) == [ROOT]


def test_without_a_bonus_the_best_that_came_out_of_a_state_decides():
    buffer = grown(0.9, 0.5)
    best, second = buffer.solutions
    buffer.add(second, children(second, 2.0, cycle=1))
    grandchild = buffer.best
    assert grandchild.parent_id == second.id
    # `second` has Q = 2, its child's; it is the older of the two, and the two may not start one cycle together.
    assert buffer.select(1, group_size=4, c=0.0) == [second]
    assert grandchild not in buffer.select(3, group_size=4, c=0.0)
    assert best in buffer.select(3, group_size=4, c=0.0)
    # With a bonus the grandchild, never tried, comes first, and now `second` must stand back.
    picks = buffer.select(3, group_size=1, c=1.0)
    assert picks[0] == grandchild
    assert second not in picks


def test_attempts_count_for_a_state_its_ancestors_and_the_root_and_the_best_of_them_is_remembered():
    buffer = grown(0.9, 0.5)
    best, second = buffer.solutions
    buffer.add(second, children(second, 2.0, 1.0, None, cycle=1))
    buffer.add(second, children(second, 0.1, cycle=2, name="worse"))
    child = buffer.best
    buffer.add(child, children(child, 0.3, 0.2, cycle=3))
    saved = buffer.to_json()
    assert saved["rollouts"] == 2 + 3 + 1 + 2
    assert saved["visits"] == {ROOT.id: 8, second.id: 6, child.id: 2}
    assert saved["best_child"] == {ROOT.id: 0.9, second.id: 2.0, child.id: 0.3}
    assert best.id not in saved["visits"]


def test_what_was_tried_in_vain_gives_way_to_what_was_not():
    buffer = grown(0.9, 0.8)
    best, second = buffer.solutions
    assert buffer.select(1, group_size=2, c=1.0) == [best]
    for attempt in range(4):
        buffer.add(best, children(best, *[0.0] * 8, cycle=attempt, name=f"vain{attempt}"))
    assert buffer.select(1, group_size=2, c=4.0) == [second]


def test_the_root_can_always_be_chosen_beside_any_other():
    buffer = grown(0.5)
    assert set(buffer.select(2, group_size=2)) == {ROOT, *buffer.solutions}


def test_too_few_states_are_repeated_from_the_best():
    buffer = grown(0.5)
    picks = buffer.select(5, group_size=2)
    assert picks[:2] * 2 + picks[:1] == picks


def test_a_text_that_is_no_unicode_is_a_solution_like_any_other():
    half = Solution.of("half a pair: \ud83d", 1.0, ROOT, 0)
    buffer = Buffer()
    buffer.add(ROOT, [half])
    assert Buffer.from_json(json.loads(json.dumps(buffer.to_json()))).best == half


def test_the_best_of_equals_is_the_oldest():
    buffer = grown(0.5)
    buffer.add(ROOT, children(ROOT, 0.5, name="later"))
    assert buffer.best == buffer.solutions[0]


HISTORY = st.lists(st.lists(st.none() | st.floats(-10, 10), min_size=1, max_size=5), max_size=8)


def played(history, **options):
    """A buffer after cycles of one group each, every one started from what the buffer itself selected."""
    buffer = Buffer(**options)
    for cycle, rewards in enumerate(history):
        (parent,) = buffer.select(1, group_size=4)
        buffer.add(parent, children(parent, *rewards, cycle=cycle, name=f"c{cycle}"))
    return buffer


@given(HISTORY, st.integers(1, 6))
def test_a_buffer_survives_json_bit_for_bit(history, count):
    buffer = played(history, capacity=4)
    restored = Buffer.from_json(json.loads(json.dumps(buffer.to_json())))
    assert restored.to_json() == buffer.to_json()
    assert restored.fingerprint == buffer.fingerprint
    assert restored.select(count, group_size=4) == buffer.select(count, group_size=4)


@given(HISTORY.filter(bool))
def test_the_same_history_gives_the_same_fingerprint_and_another_attempt_another(history):
    buffer = played(history)
    assert buffer.fingerprint == played(history).fingerprint
    assert buffer.fingerprint != played([*history, [0.0]]).fingerprint


@given(HISTORY, st.integers(1, 4))
def test_a_buffer_never_outgrows_its_capacity_and_never_loses_its_best(history, capacity):
    buffer = played(history, capacity=capacity)
    seen = [reward for rewards in history for reward in rewards if reward is not None]
    assert len(buffer.solutions) <= capacity
    assert (buffer.best.reward if buffer.best else None) == max(seen, default=None)
    assert len({solution.text for solution in buffer.solutions}) == len(buffer.solutions)


def test_going_on_from_what_was_found_beats_starting_over_with_as_many_attempts():
    """A search where an attempt changes its starting state a little: the bare problem is at 0."""

    def searched(reuse, seed):
        random, buffer = np.random.default_rng(seed), Buffer()
        for cycle in range(12):
            for parent in buffer.select(2, group_size=8) if reuse else [ROOT, ROOT]:
                found = (parent.reward or 0.0) + random.normal(0, 1, 8)
                buffer.add(parent, [Solution.of(f"x = {x!r}", float(x), parent, cycle) for x in found])
        return buffer.best.reward

    for seed in range(5):
        assert searched(reuse=True, seed=seed) > 2 * searched(reuse=False, seed=seed)


def test_numbers_out_of_range_and_what_is_no_buffer_are_refused():
    with pytest.raises(ValueError, match="capacity is 0"):
        Buffer(capacity=0)
    with pytest.raises(ValueError, match="count is 0"):
        Buffer().select(0, group_size=2)
    with pytest.raises(ValueError, match="c -1"):
        Buffer().select(1, group_size=2, c=-1)
    with pytest.raises(ValueError, match="no saved buffer of solutions: KeyError"):
        Buffer.from_json({"capacity": 1, "children_kept": 1})


def test_a_text_that_comes_back_as_its_own_descendant_ends_no_search():
    """With a reward that changes from call to call: A is let go, its child B finds A's text again, and A comes back."""
    buffer = Buffer(capacity=1, children_kept=1)
    first = Solution.of("A", 1.0, ROOT, 0)
    buffer.add(ROOT, [first])
    second = Solution.of("B", 2.0, first, 1)
    buffer.add(first, [second])
    wider = Buffer.from_json({**buffer.to_json(), "capacity": 3})
    wider.add(second, [Solution.of("A", 3.0, second, 2)])
    assert {one.text for one in wider.solutions} == {"A", "B"}
    assert len(wider.select(3, group_size=4)) == 3
