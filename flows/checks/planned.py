"""What a run will ask of Whitney, at most, if nothing fails: sessions at once, and operations by name.

Fewer are asked for where there is nothing to send: a cycle whose groups all had equal rewards takes no optimizer step
and no new snapshot, a prompt that fills the context is not sampled, a stop rule ends the run. More after a failure: a
Retry does the block again that failed. What a `build_loss` of one's own asks for is not known beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from algorithms import ALGORITHMS, Algorithm
from flows.config import CustomConfig, DapoConfig, DpoConfig, FlowConfig, SftConfig

HELDOUT_EXAMPLES, HELDOUT_PAIRS = 64, 32
"""Held-out examples, or pairs, in one `forward`: a large set is several bodies of moderate size."""


def planned_sessions(config: FlowConfig) -> int:
    """How many sessions are open at once: one, or two where a teacher has one of its own."""
    teacher = getattr(config, "teacher", None)
    return 2 if teacher is not None and teacher.session == "own" else 1


def planned_operations(algorithm: str, config: FlowConfig, heldout: int) -> Counter[str]:
    """The operations of a whole run, by the wire's names; measurements and the export are in it.

    Args:
        algorithm: its name.
        config: its configuration.
        heldout: how many examples are measured: `len(Prepared.heldout)`.
    """
    row = config.needs(ALGORITHMS[algorithm])
    measurements = planned_measurements(config, heldout)
    counts = Counter[str]()
    for times, part in ((config.cycles, _in_cycle(row, config)), (measurements, _in_measurement(config, heldout))):
        counts.update({name: times * count for name, count in part.items()})
    counts["save_weights_for_sampler"] += _other_snapshots(row, config, measurements)
    trained_runs = 2 if "critic" in row.extra_runs else 1
    counts["save_state"] = trained_runs * ceil(config.cycles / config.save_every)
    counts["export_lora"] = 1
    return +counts


def planned_measurements(config: FlowConfig, heldout: int) -> int:
    """How often held-out examples are measured: before, between, after."""
    if not (config.evaluation.enabled and heldout):
        return 0
    between = (config.cycles - 1) // config.evaluation.every if config.evaluation.every else 0
    return 2 + between


def _in_cycle(row: Algorithm, config: FlowConfig) -> Counter[str]:
    prompts, group_size = getattr(config, "groups_per_cycle", 0), getattr(config, "group_size", 0)
    drawn = row.operations_in_cycle(prompts=prompts, group_size=group_size, steps=config.steps_per_batch)
    if not isinstance(config, DapoConfig):
        return drawn
    # What is drawn again may be kept beside what was drawn before, and the reference is asked about all of it.
    again = min(config.resample.max_operations, config.resample.max_rounds * prompts)
    drawn["sample"] += again
    if config.kl.coef:
        drawn["logprobs"] += again * max(group_size, config.resample.target_group_size or 0)
    return drawn


def _in_measurement(config: FlowConfig, heldout: int) -> Counter[str]:
    """Snapshots apart."""
    counts = Counter[str]()
    if config.evaluation_terms():
        counts["sample"] = heldout * (2 if config.evaluation.greedy else 1)
    if isinstance(config, SftConfig):
        counts["forward"] = ceil(heldout / HELDOUT_EXAMPLES)
    if isinstance(config, DpoConfig):
        counts["forward"] = 2 * ceil(heldout / HELDOUT_PAIRS)
    return counts


def _other_snapshots(row: Algorithm, config: FlowConfig, measurements: int) -> int:
    """Snapshots beside one a cycle: a measurement and the cycle behind it look at the same weights, and share one."""
    sampled = measurements if config.evaluation_terms() else 0
    own = min(sampled, 1) if row.rollouts else sampled
    return own + sum(1 for _ in _frozen_runs_with_a_snapshot(row, config))


def _frozen_runs_with_a_snapshot(row: Algorithm, config: FlowConfig) -> Iterator[str]:
    """Runs that are asked for log-probs, by one snapshot each. DPO asks its reference by `forward`: that needs none."""
    if row.rollouts:
        yield from (role for role in row.extra_runs if role != "critic")
    if isinstance(config, CustomConfig) and config.teacher is not None:
        yield "teacher"
