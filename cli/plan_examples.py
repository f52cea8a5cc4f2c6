"""Examples of a plan as the model meets them, what is trained of them marked; and what the rewards say of answers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from flows.plan.gold import Gold
from flows.plan.plan import Plan
from flows.plan.samples import Sample

PROMPT_SHOWN = 240
"""Characters of a prompt that are shown; of a longer one the middle is left out."""

TRAINED = "bold green"
LINE_END = "↵"


def examples(plan: Plan) -> Iterator[RenderableType]:
    """Some examples, and how the data's own answers score."""
    if any(sample.reply for sample in plan.samples):
        yield Text.assemble("Examples, in the run's order; ", ("⟦what is trained⟧", TRAINED), ", a dot between tokens:")
    elif plan.samples:
        yield Text.assemble("Examples, in the run's order; ", ("⟦what is sampled, and trained⟧", TRAINED), ":")
    for sample in plan.samples:
        yield Padding(_sample(sample), (0, 0, 0, 1))
    if plan.gold:
        yield Text(_gold(plan.gold))


def _sample(sample: Sample) -> Text:
    prompt = sample.prompt
    if len(prompt) > PROMPT_SHOWN:
        half = PROMPT_SHOWN // 2
        prompt = f"{prompt[:half]} […] {prompt[-half:]}"
    text = Text.assemble((f"{sample.prompt_tokens} tokens + {sample.which}: ", "dim"), _on_a_line(prompt))
    if not sample.reply:
        return text.append(f"⟦{sample.completions} × up to {sample.max_tokens} tokens⟧", TRAINED)
    trained = "·".join(_on_a_line(token.text) for token in sample.reply if token.trained)
    untrained = "".join(_on_a_line(token.text) for token in sample.reply if not token.trained)
    return text.append(untrained).append(f"⟦{trained}⟧", TRAINED)


def _on_a_line(text: str) -> str:
    return text.replace("\n", LINE_END)


def _gold(gold: Gold) -> str:
    """Why some have no reward is a warning, above."""
    scored = gold.answers - gold.unscored
    told = f"{scored:,} of {gold.answers:,} scored" if gold.unscored else f"{scored:,} scored"
    return f"The data's own answers: {told}" + ("" if gold.mean is None else f", mean reward {gold.mean:.3g}")
