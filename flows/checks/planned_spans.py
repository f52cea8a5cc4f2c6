"""The operations of a run at least, typically and at most, where rewards decide whether there is anything to send.

`planned_operations` is the most. The least is a run in which no reward ever tells two completions apart, and no group
is drawn again: it samples and never takes a step. A typical one takes every step.
"""

from __future__ import annotations

from collections import Counter

from algorithms import ALGORITHMS
from algorithms.spans import Span, Spans, spans_of
from flows.checks.planned import planned_operations
from flows.config import DapoConfig, FlowConfig, SdpoConfig, TttConfig


def operation_spans(algorithm: str, config: FlowConfig, heldout: int) -> Spans:
    """The operations of a whole run by the wire's names; arguments as `planned_operations`."""
    most = planned_operations(algorithm, config, heldout)
    if not isinstance(config, DapoConfig):
        return spans_of(+_without_steps(algorithm, config, most), most, most)
    once = config.model_copy(update={"resample": config.resample.model_copy(update={"max_operations": 0})})
    typical = planned_operations(algorithm, once, heldout)
    least = _without_steps(algorithm, config, typical)
    typical["sample"] += round(config.cycles * expected_draws(config))
    return spans_of(+least, typical, most)


def cycle_spans(algorithm: str, config: FlowConfig) -> Spans:
    """The operations of the mean cycle: of a whole run without measurements, export and frozen runs' snapshots."""
    spans = operation_spans(algorithm, config, 0)
    del spans["export_lora"]
    if frozen := _frozen_snapshots(algorithm, config):
        spans["save_weights_for_sampler"] += Span.exactly(-frozen)
    return {name: span / config.cycles for name, span in spans.items()}


def most_draws(config: FlowConfig) -> int:
    """Further `sample` operations of a cycle, at most; 0 for what draws every group once."""
    if not isinstance(config, DapoConfig):
        return 0
    return min(config.resample.max_operations, config.resample.max_rounds * config.groups_per_cycle)


def expected_draws(config: FlowConfig) -> float:
    """Further `sample` operations of a cycle, typically: `flat_share` of each round's groups are drawn again."""
    if not isinstance(config, DapoConfig):
        return 0.0
    again, rounds = flat_share(config.group_size), range(1, config.resample.max_rounds + 1)
    expected = config.groups_per_cycle * sum(again**number for number in rounds)
    return float(min(expected, config.resample.max_operations))


def flat_share(group_size: int) -> float:
    """The share of groups whose rewards, 0 or 1 each, are all equal: 2 / (G + 1).

    How likely a prompt is solved is not known beforehand. Taken as evenly spread over 0…1, G completions are all right
    or all wrong with a chance of ∫ p^G + (1 − p)^G dp.
    """
    return 2 / (group_size + 1)


def may_send_nothing(algorithm: str, config: FlowConfig) -> bool:
    """Whether a cycle can end without a step, its groups all alike. With a critic, or given answers, none does."""
    row = config.needs(ALGORITHMS[algorithm])
    return row.rollouts and "critic" not in row.extra_runs


def asks_about_all(config: FlowConfig) -> bool:
    """Whether a frozen run is asked about every completion: SDPO leaves some without feedback, DAPO drops some."""
    return not isinstance(config, SdpoConfig | DapoConfig)


def prompts_are_known(config: FlowConfig) -> bool:
    """Whether what is read is known beforehand. What TTT starts from, and SDPO's teacher is shown, has been sampled."""
    return not isinstance(config, TttConfig | SdpoConfig)


def _without_steps(algorithm: str, config: FlowConfig, operations: Counter[str]) -> Counter[str]:
    """The operations that are left of a run in which no reward tells two completions apart."""
    least = operations.copy()
    if not may_send_nothing(algorithm, config):
        return least
    least["forward_backward"] = least["optim_step"] = 0
    # The weights stay, and with them their first snapshot; DAPO keeps nothing that its reference could be asked about.
    frozen = 0 if isinstance(config, DapoConfig) else _frozen_snapshots(algorithm, config)
    least["save_weights_for_sampler"] = 1 + frozen
    if not asks_about_all(config):
        least["logprobs"] = 0
    return least


def _frozen_snapshots(algorithm: str, config: FlowConfig) -> int:
    """Of a run that is not measured, what is more than one a cycle."""
    row = config.needs(ALGORITHMS[algorithm])
    counts = planned_operations(algorithm, config, 0)
    return counts["save_weights_for_sampler"] - config.cycles if row.rollouts else 0
