"""GRPO as a user runs it: a real Prefect server, a real gateway, a real (tiny) model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from tiny_configs import grpo_config

import flows
from tasks.events import Event, listening
from tasks.glossary import explain
from whitney.client import WhitneyClient
from whitney.labels import FLOW_RUN
from whitney.settings import WhitneySettings

pytestmark = pytest.mark.usefixtures("prefect_server", "endpoint")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def module_endpoint(prefect_server: str, tiny_gateway: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHITNEY_BASE_URL", tiny_gateway.base_url)
        patch.setenv("WHITNEY_API_KEY", tiny_gateway.api_key)
        yield


@pytest.fixture(scope="module")
def finished(module_endpoint: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Event]]:
    """The summary of one run, and the events it emitted."""
    events: list[Event] = []
    with listening(events.append):
        summary = asyncio.run(flows.grpo(grpo_config(tmp_path_factory.mktemp("runs"))))
    return summary, events


async def test_the_run_folder_tells_the_whole_story(finished: tuple[dict[str, Any], list[Event]]) -> None:
    summary, _ = finished
    folder = Path(summary["run_folder"])
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(summary))
    config = json.loads((folder / "config.json").read_text())
    assert config["config"]["cycles"] == 3
    assert len(config["data"]["fingerprint"]) == 64
    metrics, states = lines(folder / "metrics.jsonl"), lines(folder / "states.jsonl")
    assert [row["cycle"] for row in metrics] == [0, 1, 2]
    assert [(row["block"], row["cycle"]) for row in states] == [(0, 1), (1, 2)]
    assert states[0]["parent_state_id"] is None
    assert states[1]["parent_state_id"] == states[0]["state_id"]
    assert len(lines(folder / "samples" / "cycle-0000.jsonl")) == 16
    assert len(lines(folder / "heldout.jsonl")) == 4
    assert {row["id"] for row in lines(folder / "heldout.jsonl")} == {
        row["id"] for row in lines(folder / "samples" / "evaluation-before.jsonl")
    }
    adapter = load_file(folder / "adapter" / "adapter_model.safetensors")
    assert any(abs(tensor).max() > 0 for name, tensor in adapter.items() if "lora_B" in name), "nothing was trained"


async def test_every_metric_is_explained(finished: tuple[dict[str, Any], list[Event]]) -> None:
    summary, _ = finished
    rows = lines(Path(summary["run_folder"]) / "metrics.jsonl")
    assert [key for row in rows for key in row if explain(key) is None] == []
    trained = rows[-1]
    assert {"reward_mean", "zero_signal_fraction", "kl_sampler_trainer", "ratio_max", "loss", "grad_norm"} <= set(
        trained
    )
    assert abs(trained["kl_sampler_trainer"]) < 1e-4, "sampler and trainer hold the same weights"
    assert trained["ratio_max"] == pytest.approx(1.0, abs=1e-3)


async def test_the_sessions_are_closed_and_the_summary_is_what_the_gateway_billed(
    finished: tuple[dict[str, Any], list[Event]],
) -> None:
    summary, events = finished
    assert summary["open_sessions"] == 0
    opened = [event.facts for event in events if event.kind == "session_opened"]
    assert len(opened) == 1, "evaluation, both blocks and export share one session"
    async with WhitneyClient(WhitneySettings()) as client:
        assert await client.list_sessions(label=(FLOW_RUN, summary["flow_run_id"]), status="open") == []
        run = await client.get_run(opened[0]["run_id"])
    assert run.status == "finished"
    assert run.usage.operations == summary["operations"]
    billed = run.usage.model_dump(exclude={"operations"})
    assert {name.removesuffix("_tokens"): count for name, count in billed.items()} == summary["tokens"]


async def test_the_same_seed_gives_the_same_adapter_and_another_seed_another(
    finished: tuple[dict[str, Any], list[Event]], tmp_path: Path
) -> None:
    first = finished[0]["adapter_sha256"]
    again = await flows.grpo(grpo_config(tmp_path))
    other = await flows.grpo(grpo_config(tmp_path, seed=1, name="other-seed"))
    assert again["adapter_sha256"] == first
    assert other["adapter_sha256"] != first


async def test_the_tiny_model_learns_what_is_rewarded(tmp_path: Path) -> None:
    config = grpo_config(
        tmp_path,
        cycles=16,
        save_every=16,
        group_size=8,
        rewards=[{"function": "length", "arguments": {"target": 3}}],
        optimizer={"learning_rate": 1e-2},
        evaluation={"enabled": False},
    )
    summary = await flows.grpo(config)
    rewards = [row["reward_mean"] for row in lines(Path(summary["run_folder"]) / "metrics.jsonl")]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.2


async def test_groups_with_equal_rewards_send_no_gradient_and_are_counted(tmp_path: Path) -> None:
    config = grpo_config(tmp_path, rewards=[{"function": "contains", "weight": 0.0}], evaluation={"enabled": False})
    summary = await flows.grpo(config)
    rows = lines(Path(summary["run_folder"]) / "metrics.jsonl")
    assert [row["zero_signal_fraction"] for row in rows] == [1.0, 1.0, 1.0]
    assert [row["dropped/zero_signal"] for row in rows] == [16, 16, 16]
    assert not {"forward_backward", "optim_step"} & set(summary["operations"])
    assert summary["operations"]["save_weights_for_sampler"] == 1, "the weights never changed: one snapshot serves"


async def test_a_prompt_that_fills_the_context_is_skipped_and_counted(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": "1 + 1 = ?", "answer": "2"}, {"prompt": "9" * 600, "answer": "9"}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = grpo_config(
        tmp_path,
        data={"source": str(data), "heldout_fraction": 0},
        cycles=1,
        groups_per_cycle=2,
        evaluation={"enabled": False},
    )
    summary = await flows.grpo(config)
    (row,) = lines(Path(summary["run_folder"]) / "metrics.jsonl")
    assert row["prompts_skipped"] == 1
    assert summary["operations"]["sample"] == 1
