"""What a configured reward can be at least and at most: a forecast needs to know where a curve must end."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.rewards import RewardTerm

Range = tuple[float, float]

SHARE = (0.0, 1.0)
RANGES: dict[str, Range] = {
    "exact": SHARE,
    "number": SHARE,
    "contains": SHARE,
    "regex": SHARE,
    "length": SHARE,
    "soft_overlong": (-1.0, 0.0),
    "math_verify": SHARE,
    "reasoning_gym": SHARE,
}
"""Of the functions that are shipped. What a function of the user's can return is not known."""


def reward_range(terms: Sequence[RewardTerm]) -> Range | None:
    """The range of the weighted sum; None where it is not known, or a single value."""
    if any(term.function not in RANGES for term in terms):
        return None
    ends = [[term.weight * end for end in RANGES[term.function]] for term in terms]
    lowest, highest = sum(map(min, ends)), sum(map(max, ends))
    return (lowest, highest) if lowest < highest else None
