"""How many tokens a prompt has that is made of an example: a teacher's, or one that an earlier solution starts from.

Where it holds what is still to be sampled, that is typically as long as completions are planned to be, since it is the
same text. At most each of its tokens was half a character, and has become three.
"""

from __future__ import annotations

from typing import Literal

from flows.checks.prepared import Prepared
from flows.config import OpsdConfig, SdpoConfig, TttConfig
from tasks.examples import Example
from tasks.feedback import SIBLING_INTRODUCTION, verdict_to_come
from tasks.prompt_templates import prompt_tokens_or_none
from tasks.teacher_prompts import demonstration_prompt, feedback_prompt, field_text
from tasks.ttt_prompts import start_prompt

Case = Literal["least", "typical", "most"]

READ_AGAIN = {"least": 0, "typical": 1, "most": 3}
"""Tokens of a text that is tokenized again, for each that it was sampled as. U+FFFD, which stands for half a character,
has three bytes."""

REWARD_TOKENS = {"least": 0, "typical": 0, "most": 12}
"""What an earlier solution scored, beyond the one digit that is counted."""


def frozen_prompt(prepared: Prepared, example: Example, prompt: float, completion: float, case: Case) -> float | None:
    """Tokens in front of a completion where a frozen run is asked about it; None where it is not asked.

    Args:
        prepared: the run's checked inputs.
        example: what the student is asked.
        prompt: tokens of that.
        completion: planned tokens of the student's own.
        case: how much what is not known is taken to be.
    """
    config = prepared.config
    if isinstance(config, OpsdConfig):
        messages = demonstration_prompt(example, config.template, field=config.demonstration_field)
        tokens = prompt_tokens_or_none(prepared.renderer, messages)
        return None if tokens is None else len(tokens)
    if not isinstance(config, SdpoConfig):
        return prompt
    known, open_tokens = _feedback(prepared, config, example, completion, case)
    around = prompt_tokens_or_none(prepared.renderer, feedback_prompt(example, "", known, config.template))
    if around is None:  # feedback that spells out a special token: its attempts are not asked about
        return None
    return len(around) + READ_AGAIN[case] * completion + open_tokens


def starting_prompt(prepared: Prepared, example: Example, bare: int, completion: float, case: Case) -> float:
    """Tokens of what a group is drawn from once there are solutions: of TTT typically one of them to improve on.

    `bare` are those of the example alone; the other arguments are `frozen_prompt`'s.
    """
    config = prepared.config
    if not isinstance(config, TttConfig) or not config.reuse or case == "least":
        return bare
    around = prepared.renderer.prompt_tokens(start_prompt(example, "", 0.0, config.template))
    made = len(around) + READ_AGAIN[case] * completion + REWARD_TOKENS[case]
    return min(max(made, bare), prepared.context_tokens - 1)


def _feedback(
    prepared: Prepared, config: SdpoConfig, example: Example, completion: float, case: Case
) -> tuple[str, float]:
    """The feedback as far as it is known, and tokens of the rest."""
    source = config.feedback_source()
    if source.kind == "constant":
        return source.value, 0
    if source.kind == "field":
        return field_text(example, source.value) or "", 0
    if source.kind == "sibling":
        return SIBLING_INTRODUCTION, READ_AGAIN[case] * completion
    if source.kind == "function" and case == "most":
        return "", prepared.teacher_context_tokens
    if case == "least":
        return "", 0
    quoted = READ_AGAIN[case] * completion if case == "most" else 0
    return verdict_to_come(source, example, longest=case == "most"), quoted
