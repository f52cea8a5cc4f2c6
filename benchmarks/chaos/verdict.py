"""What must hold after a scenario, whatever was done to it. Each breach is counted under the name of what it breaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.chaos.configs import CYCLES
from benchmarks.chaos.evidence import SNAPSHOT, Evidence
from benchmarks.chaos.scenario import PASSING, Fault, Scenario

COUNTED = (
    "double_executions",
    "lost_operations",
    "open_sessions",
    "redone_over_one_block",
    "needless_failures",
    "other",
)

# What has gone wrong in one place shows in many.
MOST_TOLD = 8


@dataclass(slots=True)
class Verdict:
    """How a scenario ended. `breaches`: sentences, by what they break."""

    scenario: Scenario
    attempts: int = 0
    seconds: float = 0.0
    fired: list[Fault] = field(default_factory=list)
    adapter_equal: bool = False
    redone: int = 0
    breaches: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def unfired(self) -> list[Fault]:
        """Faults that never happened: then the scenario has shown nothing."""
        return [fault for fault in self.scenario.faults if fault not in self.fired]

    @property
    def holds(self) -> bool:
        """Whether every invariant does."""
        return self.adapter_equal and not any(self.breaches.values()) and not self.unfired

    def line(self) -> str:
        """For a person: what was done, what it cost, what is wrong."""
        told = [sentence for sentences in self.breaches.values() for sentence in sentences]
        told += [f"never fired: {fault}" for fault in self.unfired]
        told += [] if self.adapter_equal else ["the adapter is another"]
        if len(told) > MOST_TOLD:
            told = [*told[:MOST_TOLD], f"… and {len(told) - MOST_TOLD} more"]
        cost = f"{self.attempts} attempts, {self.redone} operations redone, {self.seconds:.1f} s"
        return "\n       ".join([f"{'ok  ' if self.holds else 'FAIL'} {self.scenario}  ({cost})", *told])


def judge(verdict: Verdict, found: Evidence, reference: Evidence) -> None:
    """Hold a scenario's evidence against the undisturbed run's."""
    _judge_order(verdict, found)
    _judge_lineage(verdict, found, reference)
    _judge_waste(verdict, found, reference)
    for prefix in reference.folders:
        _judge_folder(verdict, found, reference, prefix)
    still_open = [session for session, status in found.sessions if status != "closed"]
    verdict.breaches["open_sessions"] += [f"session {session} is still open" for session in still_open]
    alive = {run: status for run, status in found.runs.items() if status not in {"finished", "cancelled", "failed"}}
    verdict.breaches["other"] += [f"run {run} is still {status}" for run, status in alive.items()]
    verdict.adapter_equal = None not in found.adapters and found.adapters == reference.adapters
    verdict.fired = [
        fault for fault in verdict.scenario.faults if fault in verdict.fired or _seen(fault, found, reference)
    ]


def _judge_order(verdict: Verdict, found: Evidence) -> None:
    """No place of a run is executed twice, no snapshot is taken twice, and none that was passed over is missing."""
    for one in found.operations.values():
        if one.executions > 1:
            verdict.breaches["double_executions"].append(
                f"seq_id {one.seq} of {one.run} ({one.kind}) was executed {one.executions} times"
            )
    by_run: defaultdict[str, list[str]] = defaultdict(list)
    for (run, _), one in sorted(found.operations.items()):
        if one.executions and one.kind in {SNAPSHOT, "optim_step"}:
            by_run[run].append(one.kind)
    for run, kinds in by_run.items():
        twice = sum(pair == (SNAPSHOT, SNAPSHOT) for pair in pairwise(kinds))
        verdict.breaches["double_executions"] += [f"{run}: the same weights have two snapshots"] * twice
    sent = {(line["run"], line["seq"]) for line in found.journal if line["what"] == "sent" and "digest" in line}
    last = {run: max(seq for its, seq in sent if its == run) for run, _ in sent}
    for run, seq in sorted(sent - found.operations.keys()):
        if seq < last[run]:
            verdict.breaches["lost_operations"].append(f"seq_id {seq} of {run} never arrived, and the client went on")


def _judge_lineage(verdict: Verdict, found: Evidence, reference: Evidence) -> None:
    """In what made the final adapter each operation of the undisturbed run stands once, and no other."""
    lineage = found.lineage
    for name, part in reference.lineage.items():
        wanted = reference.executed(part)
        got = found.executed(lineage[name]) if name in lineage else Counter()
        verdict.breaches["double_executions"] += _tell(got - wanted, f"{name} of the lineage has one too many")
        verdict.breaches["lost_operations"] += _tell(wanted - got, f"{name} of the lineage lacks one")


def _judge_waste(verdict: Verdict, found: Evidence, reference: Evidence) -> None:
    """What was given up with an attempt is of one part of the flow, and holds no operation twice."""
    counted = {id(part) for part in found.lineage.values()}
    given_up: defaultdict[int, list[str]] = defaultdict(list)
    for part in found.parts:
        got = found.executed(part)
        if id(part) in counted or not got:
            continue
        verdict.redone += got.total()
        given_up[part.attempt].append(part.name)
        surplus = got - reference.executed(reference.lineage[part.name])
        verdict.breaches["double_executions"] += _tell(
            surplus, f"{part.name} of attempt {part.attempt} has one too many"
        )
    # A state that was destroyed takes its block with it.
    allowed = 2 if verdict.scenario.ending == "truncated" else 1
    for attempt, names in given_up.items():
        if len(names) > allowed:
            verdict.breaches["redone_over_one_block"].append(f"of attempt {attempt} were redone: {', '.join(names)}")


def _judge_folder(verdict: Verdict, found: Evidence, reference: Evidence, prefix: str) -> None:
    """One row and one file a cycle, and an unbroken chain of states that are those of the lineage."""
    other, folder, undisturbed = verdict.breaches["other"], found.folders[prefix], reference.folders[prefix]
    cycles = [row["cycle"] for row in folder.lines("metrics.jsonl")]
    if cycles != list(range(CYCLES)):
        other.append(f"{prefix}metrics.jsonl has cycles {cycles}")
    if folder.samples != undisturbed.samples:
        other.append(f"{prefix}samples/ holds {folder.samples}, not {undisturbed.samples}")
    states = folder.lines("states.jsonl")
    if [row["block"] for row in states] != [row["block"] for row in undisturbed.lines("states.jsonl")]:
        other.append(f"{prefix}states.jsonl has blocks {[row['block'] for row in states]}")
    parents = [row["parent_state_id"] for row in states]
    if parents != [None, *(row["state_id"] for row in states[:-1])]:
        other.append(f"the chain of {prefix}states.jsonl is broken")
    for row in states:
        part = found.lineage.get(f"{prefix}block {row['block']}")
        if part is None or row["run_id"] not in {run for run, _ in part.places}:
            other.append(
                f"{prefix}states.jsonl has block {row['block']} from {row['run_id']}, the last one trained is another"
            )


def _tell(surplus: Counter[tuple[str, str]], sentence: str) -> list[str]:
    return [f"{sentence}: {kind} {digest}" for kind, digest in surplus.elements()]


def _seen(fault: Fault, found: Evidence, reference: Evidence) -> bool:
    """Whether the journal shows that a fault has happened; a gateway's crash shows in its exit code only."""
    if not fault.in_gateway:
        return any(line["what"] == "fired" and line["fault"] == str(fault) for line in found.journal)
    if not fault.passes:
        return False
    lines = [line for line in found.journal if line["attempt"] == fault.attempt and _is_of(fault, line, reference)]
    what = PASSING[fault.action]
    if what["action"] == "status":
        return any(line.get("status") == what["status"] for line in lines)
    if what["action"] == "slow_answer":
        return any(line.get("seconds", 0.0) >= what["delay_s"] for line in lines)
    return any(line["what"] == "broken" for line in lines)


def _is_of(fault: Fault, line: dict[str, Any], reference: Evidence) -> bool:
    """Whether a request is of a fault's subject. The gateway knows a poll by its seq_id only, in whichever run."""
    if fault.subject.startswith("poll-"):
        return line.get("route") == "get_operation" and line["seq"] == reference.seq_of(fault)
    return bool(line.get("subject") == fault.subject)
