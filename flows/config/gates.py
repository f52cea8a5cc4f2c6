"""What can be said of a stage's gate before anything is trained: whether what it asks for will be measured at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from algorithms.gates import Metric, parse_gate
from algorithms.names import did_you_mean
from flows.config import DpoConfig, FlowConfig, SftConfig
from flows.config.stage import StageConfig

# Numbers of an evaluation that one algorithm alone measures.
OWN = {"loss": SftConfig, "margin": DpoConfig, "preference_accuracy": DpoConfig}


def gate_problems(stage: StageConfig, earlier: Sequence[str], configs: Mapping[str, FlowConfig]) -> Iterator[str]:
    """Why a gate could never be judged, a sentence each."""
    if stage.require is None:
        return
    try:
        gate = parse_gate(stage.require)
    except ValueError as error:
        yield str(error)
        return
    for metric in gate.metrics:
        name = metric.stage or stage.name
        if name not in (*earlier, stage.name):
            known = f"earlier stages: {', '.join(earlier)}" if earlier else "there is no earlier stage"
            yield f"{metric}: not this stage and no earlier one; {did_you_mean(name, earlier)}{known}"
        elif why := not_measured(metric, configs[name]):
            yield f"{metric} is not measured: stage {name!r} {why}"


def not_measured(metric: Metric, config: FlowConfig) -> str | None:
    """Why a stage's evaluations will not have a number; None where they will."""
    section = config.evaluation
    if not section.enabled:
        return "has evaluation.enabled = false"
    own = OWN.get(metric.name)
    if own is not None:
        algorithm = own.__name__.removesuffix("Config").lower()
        return None if isinstance(config, own) else f"does not train by {algorithm}, which alone measures it"
    if not config.evaluation_terms():
        return "has no evaluation.reward, which says what is correct"
    if metric.name == "greedy_accuracy" and not section.greedy:
        return "has evaluation.greedy = false"
    if metric.pass_at is not None and metric.pass_at not in section.pass_at:
        samples = f" and evaluation.samples = {metric.pass_at}" if section.samples < metric.pass_at else ""
        return f"does not draw for it; set evaluation.pass_at = {[*section.pass_at, metric.pass_at]}{samples}"
    return None
