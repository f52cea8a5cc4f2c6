"""The operations of a run at least, typically and at most, where rewards decide whether there is anything to send.

`planned_operations` is the most. The least is a run in which no reward ever tells two completions apart, and no group
is drawn again: it samples and never takes a step, and ends as soon as a rule of `[stop]` may have it. A typical one
takes every step; of DAPO, in as many cycles as are expected to have a signal.
"""

from __future__ import annotations

from collections import Counter

from algorithms import ALGORITHMS
from algorithms.spans import Span, Spans, spans_of
from flows.config import DapoConfig, FlowConfig, SdpoConfig, TttConfig
from flows.counts.draws import draws_of
from flows.counts.end import fewest_cycles
from flows.counts.operations import planned_operations
from flows.counts.sent import Sent


def operation_spans(
    algorithm: str, config: FlowConfig, heldout: int, sent: Sent | None = None, *, shortest: Sent | None = None
) -> Spans:
    """The operations of a whole run by the wire's names; arguments as `planned_operations`.

    `shortest` is what is sent where the run ends as soon as it may; default: everything.
    """
    ended = config.model_copy(update={"cycles": fewest_cycles(config)})
    most = planned_operations(algorithm, config, heldout, sent)
    if not isinstance(config, DapoConfig):
        least = planned_operations(algorithm, ended, heldout, shortest)
        return spans_of(+_without_steps(algorithm, ended, least), most, most)
    undrawn = {"resample": config.resample.model_copy(update={"max_operations": 0})}
    all_trained = planned_operations(algorithm, config.model_copy(update=undrawn), heldout, sent)
    least = planned_operations(algorithm, ended.model_copy(update=undrawn), heldout, shortest)
    typical = _with_expected_draws(algorithm, config, all_trained)
    return spans_of(+_without_steps(algorithm, ended, least), typical, most)


def cycle_spans(algorithm: str, config: FlowConfig, sent: Sent | None = None, *, least: Sent | None = None) -> Spans:
    """The operations of the mean cycle: of a whole run without measurements, export and frozen runs' snapshots.

    `sent` is what all cycles send, `least` where nothing is drawn again; default: everything.
    """
    whole = config.model_copy(update={"stop": type(config.stop)()})
    spans = operation_spans(algorithm, whole, 0, sent, shortest=least)
    del spans["export_lora"]
    if frozen := _frozen_snapshots(algorithm, config):
        spans["save_weights_for_sampler"] += Span.exactly(-frozen)
    return {name: span / config.cycles for name, span in spans.items()}


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


def _with_expected_draws(algorithm: str, config: DapoConfig, all_trained: Counter[str]) -> Counter[str]:
    """The mean of DAPO's runs, in whole operations, from one whose first draws are all trained on."""
    draws, typical = draws_of(config, "typical"), all_trained.copy()
    frozen = _frozen_snapshots(algorithm, config)
    # A snapshot is taken of weights that are new; the reference's, of the first groups that are kept.
    looks, ever = all_trained["save_weights_for_sampler"] - frozen, 1 - (1 - draws.steps) ** config.cycles
    typical["save_weights_for_sampler"] = round(1 + (looks - 1) * draws.steps + frozen * ever)
    for kind in ("forward_backward", "optim_step"):
        typical[kind] = round(all_trained[kind] * draws.steps)
    typical["logprobs"] = round(all_trained["logprobs"] * draws.trained)
    typical["sample"] += round(config.cycles * draws.operations)
    return +typical


def _frozen_snapshots(algorithm: str, config: FlowConfig) -> int:
    """Of a run that is not measured, what is more than one a cycle."""
    row = config.needs(ALGORITHMS[algorithm])
    counts = planned_operations(algorithm, config, 0)
    return counts["save_weights_for_sampler"] - config.cycles if row.rollouts else 0
