"""What must hold of a run after any number of attempts, by its folder and by the gateway's ledger."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from flow_probes import ledger, lines

from gateway.launch import GatewayProcess
from gateway.storage import DataDirectory

# What differs between two runs that have learned the same: an attempt that opens a teacher takes its snapshot anew.
COSTS = ("seconds/", "operations/", "tokens/")
SNAPSHOTS = "save_weights_for_sampler"


def learned(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl, without what things cost."""
    return [
        {key: value for key, value in row.items() if not key.startswith(COSTS)}
        for row in lines(folder / "metrics.jsonl")
    ]


def require_each_cycle_once(folder: Path, reference: dict[str, Any], *, cycles: int) -> None:
    """An unbroken chain of blocks of one cycle, each there once, that ends in the adapter of the reference run."""
    states = lines(folder / "states.jsonl")
    assert [state["block"] for state in states] == list(range(cycles))
    assert [state["cycle"] for state in states] == list(range(cycles))
    assert [state["parent_state_id"] for state in states] == [None, *(state["state_id"] for state in states[:-1])]
    assert learned(folder) == learned(Path(reference["run_folder"]))
    samples = sorted(path.name for path in (folder / "samples").glob("cycle-*.jsonl"))
    assert samples == [f"cycle-{cycle:04d}.jsonl" for cycle in range(cycles)]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["adapter_sha256"] == reference["adapter_sha256"]
    assert {**summary["operations"], SNAPSHOTS: 0} == {**reference["operations"], SNAPSHOTS: 0}
    assert summary["open_sessions"] == 0


def require_one_block_redone_at_most(
    gateway: GatewayProcess, flow_run_id: UUID, folder: Path, reference: dict[str, Any]
) -> None:
    """No operation was executed twice; beyond the blocks it saved no attempt was billed more than one block.

    A block that an earlier attempt had saved and that was executed all the same would be billed as such.
    """
    assert most_executions(gateway) == 1
    rows = lines(folder / "metrics.jsonl")
    attempts = {state["cycle"]: state["attempt"] for state in lines(folder / "states.jsonl")}
    a_block: Counter[str] = Counter()
    for row in rows:
        a_block |= operations(row)
    a_block |= Counter(export_lora=1)
    redone: Counter[str] = Counter()
    for attempt in range(1, max_attempt(gateway, flow_run_id) + 1):
        billed: Counter[str] = Counter()
        for run in ledger(gateway, flow_run_id, attempt).values():
            billed.update(run)
        own: Counter[str] = Counter()
        for row in rows:
            own.update(operations(row) if attempts[int(row["cycle"])] == attempt else {})
        assert not own - billed, f"attempt {attempt} saved what it was not billed for"
        assert not (billed - own) - a_block, f"attempt {attempt} was billed {billed} for {own}, a block is {a_block}"
        redone.update(billed - own)
    summary = json.loads((folder / "summary.json").read_text())
    assert +Counter(summary["redone"]["by_kind"]) == redone - Counter(
        export_lora=reference["operations"]["export_lora"]
    )


def operations(row: dict[str, Any]) -> Counter[str]:
    """A cycle's operations, by kind."""
    return Counter({key.removeprefix("operations/"): row[key] for key in row if key.startswith("operations/")})


def most_executions(gateway: GatewayProcess) -> int:
    """How often any operation of any run of a gateway was executed."""
    return _ask(gateway, "SELECT max(executions) FROM operations")


def max_attempt(gateway: GatewayProcess, flow_run_id: UUID) -> int:
    """The last attempt of a flow run that had a session."""
    query = "SELECT max(CAST(json_extract(labels, '$.\"whitney.attempt\"') AS INTEGER)) FROM sessions "
    return _ask(gateway, query + "WHERE json_extract(labels, '$.\"whitney.flow_run\"') = ?", str(flow_run_id))


def _ask(gateway: GatewayProcess, query: str, *arguments: str) -> int:
    with sqlite3.connect(DataDirectory(gateway.data_dir).ledger) as connection:
        (answer,) = connection.execute(query, arguments).fetchone()
    connection.close()
    return int(answer)
