"""Test-time training: the buffer of solutions outlives a Retry, and the best of them is never lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, first_attempt, lines, lose_answer, metrics, retry, sent_payloads, sessions_of
from tiny_configs import tiny_config

import flows
import models
from flows.config import ConfigError
from gateway.launch import GatewayProcess
from tasks.rendering import Renderer
from tasks.ttt_prompts import IMPROVE_TEMPLATE

BUFFERS = ("block-0000.json", "block-0001.json", "block-0002.json")


def buffers(folder: Path) -> list[bytes]:
    return [(folder / "buffers" / name).read_bytes() for name in BUFFERS]


@pytest.mark.parametrize(
    "harm_and_attempts",
    [
        (lambda file: None, [1, 1, 2]),
        (lambda file: file.unlink(), [1, 2, 2]),
        (lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), "rollouts": 1})), [1, 2, 2]),
        (lambda file: file.write_text("[]"), [1, 2, 2]),
    ],
    ids=["whole", "missing", "changed", "no buffer at all"],
)
async def test_a_retry_goes_on_from_exactly_the_buffer_its_block_began_with_or_from_the_block_before(
    harm_and_attempts: tuple[Callable[[Path], object], list[int]],
    local: GatewayProcess,
    taught: Taught,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[str, Any] = {"state_id": (await taught("local"))["state_id"], "save_every": 1, "cycles": 3}
    undisturbed = await flows.ttt(tiny_config("ttt", tmp_path / "undisturbed", **options))
    mend = lose_answer(monkeypatch, "save_state", 3)
    flow_run_id, failed = await first_attempt(flows.ttt, tiny_config("ttt", tmp_path, **options))
    assert failed.is_failed()
    mend()
    folder = tmp_path / "tiny-ttt"
    harm, attempts = harm_and_attempts
    harm(folder / "buffers" / BUFFERS[1])
    retried = await (await retry(flows.ttt, flow_run_id)).result()
    assert {session.status for session in await sessions_of(flow_run_id)} == {"closed"}
    assert buffers(folder) == buffers(Path(undisturbed["run_folder"]))
    assert retried["adapter_sha256"] == undisturbed["adapter_sha256"]
    states = lines(folder / "states.jsonl")
    assert [state["attempt"] for state in states] == attempts
    assert [state["carry"]["buffer"] for state in states] == [f"buffers/{name}" for name in BUFFERS]
    assert max(len(json.dumps(state)) for state in states) < 1000, "an outcome holds the buffer's name, not the buffer"


async def test_the_best_reward_never_falls_and_its_solution_is_in_best_json(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_payloads(monkeypatch)
    state_id = (await taught("local"))["state_id"]
    sent = len(payloads)
    summary = await flows.ttt(
        tiny_config("ttt", tmp_path, state_id=state_id, cycles=4, problem=3, sampling={"max_tokens": 4})
    )
    rows = metrics(summary)
    best = [row["best_reward"] for row in rows]
    assert all(later >= earlier for earlier, later in pairwise(best))
    assert best[-1] == max(row["reward_max"] for row in rows)
    folder = Path(summary["run_folder"])
    found = json.loads((folder / "best.json").read_text())
    drawn = lines(folder / "samples" / f"cycle-{found['cycle']:04d}.jsonl")
    assert (found["solution"], found["reward"]) in [(one["completion"], one["reward"]) for one in drawn]
    assert len({one["id"] for path in (folder / "samples").iterdir() for one in lines(path)}) == 1, "one problem"
    renderer = Renderer(models.resolve("tiny"))
    asked = [payload["prompt"]["token_ids"] for kind, payload in payloads[sent:] if kind == "sample"]
    problem = lines(folder / "samples" / "cycle-0000.jsonl")[0]["prompt"]
    bare = renderer.prompt_tokens([{"role": "user", "content": problem}])
    assert asked[:2] == [bare, bare], "there is nothing to start from at first"
    (buffer,) = [json.loads(path.read_text()) for path in (folder / "buffers").iterdir()]
    first = [one for one in buffer["solutions"] if one["cycle"] == 0]
    improved = [
        IMPROVE_TEMPLATE.format(question=problem, attempt=one["text"], reward=f"{one['reward']:.4g}") for one in first
    ]
    starts = [bare, *(renderer.prompt_tokens([{"role": "user", "content": text}]) for text in improved)]
    assert all(tokens in starts for tokens in asked[2:4])
    assert any(tokens != bare for tokens in asked[2:4])


async def test_without_reuse_every_attempt_starts_from_the_bare_problem(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_payloads(monkeypatch)
    state_id = (await taught("local"))["state_id"]
    await flows.ttt(tiny_config("ttt", tmp_path, state_id=state_id, cycles=2, reuse=False))
    prompts = [payload["prompt"]["token_ids"] for kind, payload in payloads if kind == "sample"]
    assert len(prompts) == 4
    assert all(prompt == prompts[0] for prompt in prompts)


async def test_a_problem_that_the_data_does_not_have_is_refused(local: GatewayProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"problem = 5000: the data has \d+ examples, counted from 0"):
        await flows.ttt(tiny_config("ttt", tmp_path, problem=5000))
