"""A plan as a person reads it: tables that fit 80 columns, examples with what is trained marked, notes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.plan_numbers import Row, bytes_told, rows
from flows.checks.plan import Plan
from flows.checks.plan_gold import Gold
from flows.checks.plan_samples import Sample

PROMPT_SHOWN = 240
"""Characters of a prompt that are shown; of a longer one the middle is left out."""

TRAINED = "bold green"
LINE_END = "↵"


def shown(plan: Plan) -> Iterator[RenderableType]:
    """A whole plan; of a pipeline every stage's, then the sum."""
    for name, stage in plan.stages.items():
        yield Text(f"stage {name}", style="bold reverse")
        yield from shown(stage)
    yield Text(plan.title, style="bold")
    yield _quantities(plan)
    if plan.models:
        yield _memory(plan)
    yield from _examples(plan)
    for note in plan.notes:
        yield Padding(Text(f"· {note}"), (0, 0, 0, 1))
    yield ""


def _quantities(plan: Plan) -> Table:
    """Operations, tokens, FLOPs, time and money: of the mean cycle, and of the whole."""
    table = plain_table()
    table.add_column(f"{plan.cycles} cycle{'' if plan.cycles == 1 else 's'}", no_wrap=True)
    for title in ("a cycle", "at least", "typically", "at most"):
        table.add_column(title, justify="right", no_wrap=True)
    group = ""
    for row in rows(plan):
        if group not in ("", row.group):
            table.add_section()
        group = row.group
        table.add_row(row.name, *_cells(row), style="bold" if row.total or row.group == "compute" else "")
    return table


def _cells(row: Row) -> list[str]:
    mean = "" if row.mean is None else row.told(row.mean.typical)
    return [mean, *(["not known"] * 3 if row.whole is None else map(row.told, row.whole.values))]


def _memory(plan: Plan) -> Table:
    """What each model holds: "KV" are keys and values, "backward" the activations of a backward pass."""
    table = plain_table()
    table.add_column("memory", overflow="fold")
    for title in ("weights", "adapter", "KV", "backward", "all"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, held in plan.models.items():
        parts = (held.weights, held.adapter_and_optimizer, held.kv_cache, held.activations, held.total)
        table.add_row(name, *map(bytes_told, parts))
    return table


def _examples(plan: Plan) -> Iterator[RenderableType]:
    if plan.samples:
        yield Text.assemble("Examples, in the run's order. Trained, token by token: ", ("⟦so·it·is⟧", TRAINED))
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
    mean = "none has a reward" if gold.mean is None else f"mean reward {gold.mean:.3g}"
    unscored = f", {gold.unscored} without a reward: {gold.why}" if gold.unscored else ""
    return f"The data's own answers, scored: {gold.answers}, {mean}{unscored}"


def plain_table() -> Table:
    """A table of few lines, for a terminal or a file."""
    return Table(box=SIMPLE, padding=(0, 1), pad_edge=False)
