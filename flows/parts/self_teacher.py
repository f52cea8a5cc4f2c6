"""What a model is shown when it teaches itself: the golden answer, or feedback on the student's attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flows.config import OpsdConfig, SdpoConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycle
from flows.teacher import Prompts
from tasks.feedback import NOTHING_TO_SAY, feedback_for
from tasks.prompt_templates import prompt_tokens_or_none
from tasks.scoring import Group, RewardError
from tasks.teacher_prompts import demonstration_prompt, feedback_prompt


def demonstration_prompts(attempt: Attempt, config: OpsdConfig, groups: Sequence[Group]) -> Prompts:
    """The question with its golden answer, the same for all attempts of a group."""
    prompts: list[list[list[int] | None]] = []
    for group in groups:
        messages = demonstration_prompt(group.example, config.template, field=config.demonstration_field)
        prompts.append([prompt_tokens_or_none(attempt.inputs.renderer, messages)] * len(group.sequences))
    return prompts


async def feedback_prompts(cycle: Cycle, config: SdpoConfig, groups: Sequence[Group]) -> Prompts:
    """The question with each attempt and the feedback on it; attempts without feedback are counted by reason."""
    renderer = cycle.attempt.inputs.renderer
    missing: Counter[str] = Counter()
    source = config.feedback_source()
    feedback = await feedback_for(groups, source, renderer=renderer, pool=cycle.attempt.pool, missing=missing)
    _require_some_feedback(groups, missing, config.feedback)
    for row, said in zip(cycle.samples, (one for of_group in feedback for one in of_group), strict=True):
        row["feedback"] = said
    cycle.metrics |= {f"no_feedback/{reason}": count for reason, count in missing.items()}
    prompts: list[list[list[int] | None]] = []
    for group, of_group in zip(groups, feedback, strict=True):
        messages = [
            None if said is None else feedback_prompt(group.example, text, said, config.template)
            for text, said in zip(group.texts, of_group, strict=True)
        ]
        prompts.append([None if one is None else prompt_tokens_or_none(renderer, one) for one in messages])
    return prompts


def _require_some_feedback(groups: Sequence[Group], missing: Counter[str], source: str) -> None:
    """Stop where a function of the user's failed on every single attempt: each cycle would be paid for in vain.

    Raises:
        RewardError: names the function and why it failed, and how often.
    """
    mine = {why: count for why, count in missing.items() if why.startswith(f"{source}: ")}
    failed = Counter({why: count for why, count in mine.items() if NOTHING_TO_SAY not in why})
    if failed and failed.total() == sum(len(group.sequences) for group in groups):
        reasons = ", ".join(f"{why} ({count} times)" for why, count in failed.most_common())
        raise RewardError(f"feedback = {source!r} failed on all {failed.total()} attempts of a cycle: {reasons}")
