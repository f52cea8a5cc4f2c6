"""`whitney lineage` of runs that really failed and went on, held against the gateway's own ledger."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flow_probes import first_attempt, ledger, lines, lose_answer, retry
from tiny_configs import grpo_config

import flows
from cli.app import run_command
from gateway.launch import GatewayProcess


async def lineage(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What `whitney lineage` prints; in a thread, since it has a loop of its own."""
    capsys.readouterr()
    assert await asyncio.to_thread(run_command, ["lineage", *arguments]) == status
    told = capsys.readouterr()
    return told.out + told.err


async def failed_and_retried(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str]:
    """A run of three blocks whose second is trained twice: its flow run, and its lineage after the failure."""
    config = grpo_config(folder, name="twice", save_every=1, keep_states=2)
    mend = lose_answer(monkeypatch, "save_state", nth=2)
    flow_run_id, failed = await first_attempt(flows.grpo, config)
    assert failed.is_failed()
    meanwhile = await lineage(capsys, str(folder / "twice"))
    mend()
    assert (await retry(flows.grpo, flow_run_id)).is_completed()
    return str(flow_run_id), meanwhile


def all_billed(gateway: GatewayProcess, flow_run_id: str) -> list[Counter[str]]:
    """The ledger's operations of the first and of the second attempt."""
    return [sum(ledger(gateway, flow_run_id, attempt).values(), Counter[str]()) for attempt in (1, 2)]


async def test_lineage_says_what_a_retry_has_done_again_to_the_operation(
    local: GatewayProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flow_run_id, meanwhile = await failed_and_retried(tmp_path, monkeypatch, capsys)
    assert "unbroken: each of 1 cycle is in the chain once" in meanwhile
    assert "evaluations, and what was begun and is not saved; the run has not ended" in meanwhile

    table: dict[str, Any] = json.loads(await lineage(capsys, str(tmp_path / "twice"), "--json"))
    bills = all_billed(local, flow_run_id)
    assert [Counter(table["billed"][attempt]["operations"]) for attempt in ("1", "2")] == bills
    summary = json.loads((tmp_path / "twice" / "summary.json").read_text())
    again = bills[0] + bills[1]
    again.subtract(summary["operations"])
    assert Counter(table["redone"]["by_kind"]) == +again, "what was billed and is in no block, evaluation or export"
    assert table["redone"] == summary["redone"], "as the flow has it"
    assert table["redone"]["operations"] > 0
    assert [(block["cycles"], block["attempt"]) for block in table["blocks"]] == [([0], 1), ([1], 2), ([2], 2)]

    told = await lineage(capsys, str(tmp_path / "twice"))
    assert (
        f"redone:   {table['redone']['operations']} operations, {table['redone']['tokens']:,} tokens (attempt" in told
    )

    # By the state: across the first one, which has been deleted, since only two are kept.
    states = [row["state_id"] for row in lines(tmp_path / "twice" / "states.jsonl")]
    walk = json.loads(await lineage(capsys, states[-1], "--json"))
    assert [state["state_id"] for state in walk] == states[::-1]
    assert [state["kept"] for state in walk] == [True, True, False]
    assert {state["labels"]["whitney.flow_run"] for state in walk} == {flow_run_id}
