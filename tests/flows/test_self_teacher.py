"""OPSD and SDPO: the teacher is asked exactly what the template says, and nothing else of it is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, all_sessions, ledger, lines, metrics, sent_payloads
from tiny_configs import tiny_config

import flows
import models
from algorithms.opsd import DEMONSTRATION_TEMPLATE
from algorithms.sdpo import FEEDBACK_TEMPLATE
from flows.config import ConfigError
from gateway.launch import GatewayProcess
from tasks.rendering import Renderer
from tasks.scoring import RewardError

Payloads = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(models.resolve("tiny"))


def asked(payloads: Payloads) -> list[list[int]]:
    return [payload["input"]["token_ids"] for kind, payload in payloads if kind == "logprobs"]


def drawn(summary: dict[str, Any], cycle: int = 0) -> list[dict[str, Any]]:
    return lines(Path(summary["run_folder"]) / "samples" / f"cycle-{cycle:04d}.jsonl")


def steps(payloads: Payloads) -> list[dict[str, Any]]:
    return [payload for kind, payload in payloads if kind == "forward_backward"]


def question(renderer: Renderer, text: str) -> list[int]:
    return renderer.prompt_tokens([{"role": "user", "content": text}])


async def test_opsds_teacher_sees_the_question_with_the_golden_answer_before_each_completion(
    local: GatewayProcess, taught: Taught, tmp_path: Path, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    payloads = sent_payloads(monkeypatch)
    summary = await flows.opsd(tiny_config("opsd", tmp_path, state_id=state_id, cycles=1))
    rows = drawn(summary)
    assert len(rows) == len(asked(payloads)) == 8
    for row, tokens in zip(rows, asked(payloads), strict=True):
        shown = question(renderer, DEMONSTRATION_TEMPLATE.format(question=row["prompt"], answer=row["answer"]))
        assert tokens[: len(shown)] == shown
        assert len(tokens) == len(shown) + row["tokens"]
    (step,) = steps(payloads)
    bare = question(renderer, rows[0]["prompt"])
    assert step["data"][0]["input"]["token_ids"][: len(bare)] == bare, "the student is trained behind its own prompt"


async def test_opsds_soft_targets_are_the_teachers_likeliest_tokens_renormalised_behind_the_skipped_ones(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    payloads = sent_payloads(monkeypatch)
    config = tiny_config("opsd", tmp_path, state_id=state_id, cycles=1, topk=5, skip_first_tokens=1)
    summary = await flows.opsd(config)
    (row,) = metrics(summary)
    assert {payload["topk"] for kind, payload in payloads if kind == "logprobs"} == {5}
    (step,) = steps(payloads)
    assert step["loss_function"] == "cross_entropy"
    weights = [datum["loss_inputs"]["weights"] for datum in step["data"]]
    assert {tensor["shape"][1] for tensor in weights} == {5}
    positions = [
        sum(tensor["values"][start : start + 5]) for tensor in weights for start in range(0, len(tensor["values"]), 5)
    ]
    trained = [total for total in positions if total]
    # Every completion's tokens but its first have soft targets; under the plain sum each adds up to 1.
    assert trained == pytest.approx([1.0] * len(trained), abs=1e-5)
    assert len(trained) == sum(max(0, one["tokens"] - 1) for one in drawn(summary))
    assert row["grad_norm"] > 0


async def test_sdpos_teacher_sees_each_attempt_with_what_was_found_when_it_was_checked(
    local: GatewayProcess, taught: Taught, tmp_path: Path, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_id = (await taught("local"))["state_id"]
    payloads = sent_payloads(monkeypatch)
    config = tiny_config("sdpo", tmp_path, state_id=state_id, cycles=1, feedback="constant:Look again.")
    summary = await flows.sdpo(config)
    rows = drawn(summary)
    for row, tokens in zip(rows, asked(payloads), strict=True):
        text = FEEDBACK_TEMPLATE.format(question=row["prompt"], attempt=row["completion"], feedback="Look again.")
        shown = question(renderer, text)
        assert tokens[: len(shown)] == shown
        assert len(tokens) == len(shown) + row["tokens"]


async def test_attempts_without_feedback_are_counted_by_reason_and_never_asked_about(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    state_id = (await taught("local"))["state_id"]
    # Nobody is right, so no sibling can show how it is done.
    never = [{"function": "regex", "arguments": {"pattern": "never said"}}]
    summary = await flows.sdpo(
        tiny_config("sdpo", tmp_path, state_id=state_id, cycles=1, feedback="sibling", rewards=never)
    )
    (row,) = metrics(summary)
    reasons = {key: count for key, count in row.items() if key.startswith("no_feedback/")}
    assert sum(reasons.values()) == 8
    assert row["dropped/no_teacher"] == 8
    assert (row["datums"], row["teacher_truncated"]) == (0, 0)
    assert ledger(local, summary["flow_run_id"])["teacher"].get("logprobs", 0) == 0


async def test_feedback_that_spells_out_a_special_token_costs_its_attempts_and_not_the_run(
    local: GatewayProcess, taught: Taught, tmp_path: Path, renderer: Renderer
) -> None:
    token = next(text for text in ("<|im_end|>", "<|endoftext|>", "</s>") if renderer.special_token_in(text))
    state_id = (await taught("local"))["state_id"]
    config = tiny_config("sdpo", tmp_path, state_id=state_id, cycles=1, feedback=f"constant:It said {token}")
    summary = await flows.sdpo(config)
    (row,) = metrics(summary)
    assert (row["dropped/no_teacher"], row["datums"]) == (8, 0)
    assert summary["open_sessions"] == 0


@pytest.mark.parametrize(
    ("algorithm", "fields", "said"),
    [
        ("opsd", {"template": "{question}"}, r"\{answer\} is missing"),
        ("sdpo", {"template": "{question} {attempt}"}, r"\{feedback\} is missing"),
        ("sdpo", {"feedback": "verifer"}, "did you mean 'verifier'"),
        ("opsd", {"topk": 5, "model": {"name": "tiny", "provider": "modal"}}, "modal"),
        ("opsd", {"demonstration_field": "solution"}, "examples have no text in the field 'solution'"),
    ],
)
async def test_what_a_teacher_cannot_be_shown_is_refused_before_anything(
    algorithm: str, fields: dict[str, Any], said: str, local: GatewayProcess, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        await flows.FLOWS[algorithm](tiny_config(algorithm, tmp_path, **fields))
    assert not list(tmp_path.iterdir())


async def test_sdpo_can_be_told_by_a_field_of_the_data(
    local: GatewayProcess, taught: Taught, tmp_path: Path, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"prompt": "3 + 4 = ?", "answer": "7", "hint": "one more than six"}) + "\n")
    state_id = (await taught("local"))["state_id"]
    payloads = sent_payloads(monkeypatch)
    config = tiny_config(
        "sdpo",
        tmp_path / "runs",
        state_id=state_id,
        cycles=1,
        groups_per_cycle=1,
        feedback="field:hint",
        data={"source": str(data), "heldout_fraction": 0},
    )
    await flows.sdpo(config)
    assert len(asked(payloads)) == 4
    assert all("one more than six" in renderer.decode(tokens) for tokens in asked(payloads))


async def test_a_feedback_function_that_always_fails_stops_the_run_after_one_cycle(
    local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grumpy.py").write_text("def feedback(completion, *, reward):\n    raise KeyError('no')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = tiny_config("sdpo", tmp_path, state_id=(await taught("local"))["state_id"], feedback="grumpy:feedback")
    with pytest.raises(
        RewardError, match=r"feedback = 'grumpy:feedback' failed on all 8 attempts of a cycle: .*KeyError"
    ):
        await flows.sdpo(config)
    assert {status for _, status in await all_sessions()} == {"closed"}


async def test_a_demonstration_that_fills_the_teachers_context_stops_the_run_after_one_cycle(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    template = "{question} {answer} " + "and so on " * 600
    config = tiny_config("opsd", tmp_path, state_id=(await taught("local"))["state_id"], template=template)
    with pytest.raises(ValueError, match="fits behind its teacher's prompt: the context holds 512 tokens"):
        await flows.opsd(config)
    assert {status for _, status in await all_sessions()} == {"closed"}
