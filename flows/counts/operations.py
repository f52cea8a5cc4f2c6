"""What a run will ask of Whitney, at most, if nothing fails: sessions at once, and operations by name.

Fewer are asked for where rewards leave nothing to send: a cycle whose groups all had equal ones takes no optimizer step
and no new snapshot; or where a stop rule ends the run. More after a failure: a Retry does the block again that failed.
What a `build_loss` of one's own asks for is not known beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from algorithms import ALGORITHMS, Algorithm
from flows.config import CustomConfig, DapoConfig, DpoConfig, FlowConfig, SftConfig
from flows.counts.draws import largest_group, most_draws
from flows.counts.sent import Heldout, InCycle, Sent, everything

SNAPSHOT = "save_weights_for_sampler"

HELDOUT_EXAMPLES, HELDOUT_PAIRS = 64, 32
"""Held-out examples, or pairs, in one `forward`: a large set is several bodies of moderate size."""


def planned_sessions(config: FlowConfig) -> int:
    """How many sessions are open at once: one, or two where a teacher has one of its own."""
    teacher = getattr(config, "teacher", None)
    return 2 if teacher is not None and teacher.session == "own" else 1


def planned_operations(algorithm: str, config: FlowConfig, heldout: int, sent: Sent | None = None) -> Counter[str]:
    """The operations of a whole run, by the wire's names; measurements and the export are in it.

    Args:
        algorithm: its name.
        config: its configuration.
        heldout: how many examples are measured: `len(Prepared.heldout)`.
        sent: what is sent of the data; default: everything.
    """
    row = config.needs(ALGORITHMS[algorithm])
    sent = everything(config, heldout) if sent is None else sent
    measurements = planned_measurements(config, heldout)
    counts = Counter[str]()
    for each, times in sent.cycles.items():
        counts.update({name: times * count for name, count in _in_cycle(row, config, each).items()})
    counts.update({name: measurements * count for name, count in in_measurement(config, sent.heldout).items()})
    counts[SNAPSHOT] += _other_snapshots(row, config, measurements) - sent.unchanged
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


def in_measurement(config: FlowConfig, heldout: Heldout) -> Counter[str]:
    """The operations of one measurement, its snapshot apart."""
    counts = Counter[str]()
    if config.evaluation_terms():
        counts["sample"] = heldout.prompts * (2 if config.evaluation.greedy else 1)
    if isinstance(config, SftConfig):
        counts["forward"] = ceil(heldout.replies / HELDOUT_EXAMPLES)
    if isinstance(config, DpoConfig):
        counts["forward"] = 2 * ceil(heldout.replies / HELDOUT_PAIRS)
    return counts


def _in_cycle(row: Algorithm, config: FlowConfig, sent: InCycle) -> Counter[str]:
    group_size = getattr(config, "group_size", 0)
    counts = row.operations_in_cycle(prompts=sent.used, group_size=group_size, steps=config.steps_per_batch)
    if not sent.used:  # the weights are looked at all the same
        counts = Counter({SNAPSHOT: counts[SNAPSHOT]})
    if row.rollouts:
        counts["sample"] = sent.drawn
    if not isinstance(config, DapoConfig):
        return counts
    # What is drawn again may be kept beside what was drawn before, and the reference is asked about all of it.
    again = most_draws(config)
    counts["sample"] += again
    if config.kl.coef:
        counts["logprobs"] += again * largest_group(config)
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
