"""What a scenario leaves behind, read back: the journal, the gateway's ledger, the run folder."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.chaos.scenario import Fault
from benchmarks.chaos.stand import Stand
from whitney.labels import ROOT_FLOW_RUN

Identity = tuple[str, str]
"""Kind and digest of an operation's payload. No sampler's id is in it, so it is the same in every run."""

SNAPSHOT = "save_weights_for_sampler"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the ledger, and what the journal knows of it."""

    run: str
    seq: int
    kind: str
    status: str
    executions: int
    digest: str | None

    @property
    def identity(self) -> Identity:
        """What it does, whichever run it belongs to."""
        return self.kind, self.digest or "?"


@dataclass(slots=True)
class Part:
    """One execution of a part of the flow ("block 1", "export") in one attempt."""

    name: str
    attempt: int
    done: bool = False
    places: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What a training run has left on the caller's disk."""

    path: Path

    @property
    def adapter(self) -> str | None:
        """SHA-256 of the exported weights; None when there are none."""
        weights = self.path / "adapter" / "adapter_model.safetensors"
        return hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of a file."""
        path = self.path / name
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []

    @property
    def samples(self) -> list[str]:
        """The files of samples."""
        return sorted(path.name for path in (self.path / "samples").glob("*.jsonl"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it. `operations` by (run, seq_id); `parts` in the order in which they began.

    `folders`: the run folder, or each stage's, by what begins the names of its parts.
    """

    journal: list[dict[str, Any]]
    operations: dict[tuple[str, int], Operation]
    parts: list[Part]
    sessions: list[tuple[str, str]]
    runs: dict[str, str]
    folders: dict[str, RunFolder]

    @classmethod
    def gather(
        cls, stand: Stand, flow_run_id: UUID, journal: list[dict[str, Any]], folders: Mapping[str, Path]
    ) -> Evidence:
        """Read ledger, journal and folders."""
        sent: dict[tuple[str, int], str] = {}
        for line in journal:
            if line["what"] == "sent" and "digest" in line:
                sent.setdefault((line["run"], line["seq"]), line["digest"])
        owned = "FROM sessions JOIN runs USING (session_id) JOIN operations USING (run_id)"
        ours = "EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ? AND value = ?)"
        label = (ROOT_FLOW_RUN, str(flow_run_id))
        with stand.ledger() as ledger:
            rows = ledger.execute(
                f"SELECT run_id, seq_id, kind, operations.status AS status, executions {owned} WHERE {ours}", label
            ).fetchall()
            sessions = ledger.execute(f"SELECT session_id, status FROM sessions WHERE {ours}", label).fetchall()
            runs = ledger.execute(
                f"SELECT run_id, runs.status FROM sessions JOIN runs USING (session_id) WHERE {ours}", label
            ).fetchall()
        operations = {
            (row["run_id"], row["seq_id"]): Operation(**_named(row), digest=sent.get((row["run_id"], row["seq_id"])))
            for row in rows
        }
        return cls(
            journal,
            operations,
            _parts(journal),
            [tuple(row) for row in sessions],
            dict(map(tuple, runs)),
            {prefix: RunFolder(path) for prefix, path in folders.items()},
        )

    def executed(self, part: Part) -> Counter[Identity]:
        """What a part has had executed, without snapshots: a restored run needs one where another still had its own."""
        found = [self.operations[place] for place in part.places if place in self.operations]
        return Counter(one.identity for one in found if one.executions and one.kind != SNAPSHOT)

    @property
    def lineage(self) -> dict[str, Part]:
        """The execution of each part that counts: the last one that was completed."""
        return {part.name: part for part in self.parts if part.done}

    @property
    def adapters(self) -> list[str | None]:
        """SHA-256 of the exported weights, of each folder; None where there are none."""
        return [folder.adapter for folder in self.folders.values()]

    def seq_of(self, fault: Fault) -> int | None:
        """The seq_id of the operation that a fault's subject and number name."""
        posted = (line for line in self.journal if line["what"] == "sent" and "digest" in line)
        return next((line["seq"] for line in posted if (line["kind"], line["nth"]) == (fault.kind, fault.nth)), None)

    @property
    def counts(self) -> dict[str, int]:
        """How many requests of each subject the run has made."""
        counts: Counter[str] = Counter()
        for line in self.journal:
            if line["what"] == "sent":
                counts[line["subject"]] = max(counts[line["subject"]], line["nth"])
        return counts


def _named(row: Any) -> dict[str, Any]:
    return {
        "run": row["run_id"],
        "seq": row["seq_id"],
        "kind": row["kind"],
        "status": row["status"],
        "executions": row["executions"],
    }


def _parts(journal: Iterable[dict[str, Any]]) -> list[Part]:
    """Which operations each part posted. Two attempts may be at work at once, so each attempt has its own thread."""
    parts: list[Part] = []
    current: dict[int, Part] = {}
    for line in journal:
        attempt = line["attempt"]
        if line["what"] == "begun":
            parts.append(Part(line["part"], attempt))
            current[attempt] = parts[-1]
        elif line["what"] == "done":
            current[attempt].done = True
        elif line["what"] == "sent" and "digest" in line and attempt in current:
            place = (line["run"], line["seq"])
            if place not in current[attempt].places:
                current[attempt].places.append(place)
    return parts
