"""A pipeline on one page of markdown: what each stage has come to, as a picture and as a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from algorithms.readings import reading
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.stages.outcome import Evaluation, GateOutcome, StageOutcome
from tasks.bill import bill_markdown
from tasks.curve import image, line_chart_svg
from tasks.markdown import cell
from tasks.measured import headline
from tasks.planned import planned_markdown
from tasks.stopped import stopped_markdown

TITLE = "Held-out accuracy after each stage, with 95% intervals"
ACROSS = 80
"""Characters that the names below the chart have room for, together."""
Link = Callable[[str], str | None]
"""A flow run's page by its id, where there is a UI."""


def pipeline_markdown(
    pipeline: PipelineConfig,
    outcomes: Sequence[StageOutcome],
    *,
    name: str,
    ended: Mapping[str, str],
    account: Mapping[str, Any],
    lost: Collection[str] = (),
    link: Link = lambda _: None,
) -> str:
    """The page.

    Args:
        pipeline: its configuration.
        outcomes: of the stages that are finished.
        name: the run's.
        ended: what to say of a stage that has not come to its end: why it failed, or was left out.
        account: what this run has cost so far, by `flows.stages.summary.own_bill`; at its end the whole summary.
        lost: stages whose adapters are not where they were.
        link: to each stage's own page.
    """
    done = {outcome.stage: outcome for outcome in outcomes}
    rows = [
        _row(stage, number, done.get(stage.name), ended.get(stage.name, ""), link)
        for number, stage in pipeline.numbered()
    ]
    table = "\n".join([*_head(), *rows])
    parts = [f"# {name}", stopped_markdown(account), _chart(outcomes), table, *_left(outcomes, lost)]
    return "\n\n".join(part for part in (*parts, *_cost(account)) if part) + "\n"


def _cost(account: Mapping[str, Any]) -> Iterator[str]:
    """What was billed and, kind by kind, what was planned; nothing before the first stage is finished."""
    if account["operations"]:
        yield bill_markdown(account)
    if table := planned_markdown(account):
        yield f"What was planned for the stages that have begun, beside what was billed:\n\n{table}"


def _head() -> tuple[str, str]:
    names = ("stage", "algorithm", "held out, before → after [95%]", "gate", "operations", "tokens", "seconds")
    return f"| {' | '.join(names)} |", "|" + "---|" * len(names)


def _row(stage: StageConfig, number: int, outcome: StageOutcome | None, ended: str, link: Link) -> str:
    if outcome is None:
        cells = [f"{number} {stage.name}", stage.algorithm, ended or "–", stage.require or "", "", "", ""]
    else:
        page = link(outcome.flow_run_id)
        named = f"[{stage.name}]({page})" if page else stage.name
        cost = (sum(outcome.operations.values()), sum(outcome.tokens.values()), round(outcome.seconds))
        cells = [
            f"{number} {named}",
            outcome.algorithm,
            "; ".join(filter(None, (_measured(outcome.evaluation_before, outcome.evaluation_after), ended))),
            _gate(outcome.gate),
            *(f"{figure:,}" for figure in cost),
        ]
    return f"| {' | '.join(cell(one) for one in cells)} |"


def _measured(before: Evaluation | None, after: Evaluation | None) -> str:
    if (found := headline(before, after)) is None:
        return "not measured"
    name, first, last = found
    return f"{name} {first} → **{last}**"


def _gate(gate: GateOutcome | None) -> str:
    if gate is None:
        return ""
    return "passed" if gate.passed else f"**failed** ({gate.on_fail})"


def _chart(outcomes: Sequence[StageOutcome]) -> str:
    """A dot for each stage whose accuracy is measured; nothing where none is."""
    measured = [
        (outcome.stage, after)
        for outcome in outcomes
        if (after := reading(outcome.evaluation_after, "accuracy")) is not None
    ]
    rows = [
        {
            "cycle": place,
            "accuracy": after.value,
            **({"accuracy_interval": after.interval} if after.interval else {}),
        }
        for place, (_, after) in enumerate(measured)
    ]
    room = max(4, ACROSS // max(1, len(measured)))
    names = [stage if len(stage) <= room else f"{stage[: room - 1]}…" for stage, _ in measured]
    svg = line_chart_svg(rows, keys=("accuracy",), title=TITLE, across="stage", joined=True, names=names)
    return image(svg, TITLE) if svg else ""


def _left(outcomes: Sequence[StageOutcome], lost: Collection[str]) -> Iterator[str]:
    """What the gates said, and where what the stages have left is to be found."""
    gates = [f"- gate of {one.stage}, `{one.gate.require}`: {one.gate.message}" for one in outcomes if one.gate]
    lines = [
        f"- {outcome.stage}: adapter `{outcome.adapter}`{' (gone)' if outcome.stage in lost else ''}, artifact "
        f"`{outcome.artifact_id}`, state `{outcome.state_id}`"
        for outcome in outcomes
    ]
    yield from ("\n".join(part) for part in (gates, lines) if part)
