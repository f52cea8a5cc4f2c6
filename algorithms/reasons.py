"""Why a completion, an example or a pair is not trained on: what `dropped/<reason>` in the metrics counts."""

from __future__ import annotations

EMPTY = "empty_completion"
"""Not one token."""

UNSCORED = "unscored"
"""No finite reward: a reward function failed, or said NaN."""

TOO_FEW = "too_few_rewards"
"""Its group has fewer than two usable rewards: there is nothing to compare it with."""

ZERO_SIGNAL = "zero_signal"
"""Nothing in its group is better than the rest; of a teacher, no token that it judges differently."""

OVERLONG = "overlong"
"""Cut off at max_tokens."""

TOO_LONG = "too_long"
"""Prompt and completion do not fit the model's context."""

NO_TEACHER = "no_teacher"
"""The teacher could not be asked: no feedback, or no room behind its prompt."""

UNPAIRED = "unpaired"
"""The other answer of its pair is missing."""

PROMPTS_DIFFER = "prompts_differ"
"""The two answers of its pair are to different prompts."""

IDENTICAL = "identical"
"""Both answers of its pair are the same."""
