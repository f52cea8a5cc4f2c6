"""A user's own `build_loss`: a short file outside the project that trains, asks, and is held to its contract."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
from flow_probes import (
    Taught,
    all_sessions,
    count_tasks,
    descendants,
    first_attempt,
    ledger,
    metrics,
    sent_payloads,
    sessions_of,
)
from tiny_configs import tiny_config

import flows
from flows.config import ConfigError
from flows.parts.build_loss import join
from flows.parts.loss_context import OperationClient
from gateway.launch import GatewayProcess

SYNC = """
from algorithms import completion_logprobs, forward_backward_payload, group_mean_advantages, rl_datum

def build_loss(sample, cycle, request, ctx):
    prompt, data = request["prompt"]["token_ids"], []
    advantages = group_mean_advantages([one["reward"] for one in sample["sequences"]])
    for one, advantage in zip(sample["sequences"], advantages):
        asked = {"input": {"token_ids": [*prompt, *one["tokens"]]}}
        answer = ctx.client.sampler_operation(ctx.teacher_run_id, ctx.teacher_sampler_id, "logprobs", asked)
        gaps = [t - s for t, s in zip(completion_logprobs(answer["logprobs"], len(one["tokens"])), one["logprobs"])]
        data.append(rl_datum(prompt, one["tokens"], one["logprobs"], [advantage + 0.1 * gap for gap in gaps]))
    return forward_backward_payload(data, "importance_sampling")
"""

# C = Σ lp², by gradient weights: the datums of a greedy reply, pushed to where its log-probs are 0.
ASYNC = """
from algorithms import forward_backward_payload, sft_datum, weighted_data

async def build_loss(sample, cycle, request, ctx):
    ask = {**request, "num_samples": 1, "sampling_params": {**request["sampling_params"], "temperature": 0.0}}
    greedy = (await ctx.client.sampler_operation(ctx.run_id, ctx.sampler_id, "sample", ask))["sequences"][0]
    data = [sft_datum(request["prompt"]["token_ids"], greedy["tokens"])]
    payload = forward_backward_payload(data, "cross_entropy")
    outputs = (await ctx.client.run_operation(ctx.run_id, "forward", payload))["loss_outputs"]
    gradients = [[2 * lp for lp in output["logprobs"]["values"]] for output in outputs]
    return forward_backward_payload(weighted_data(data, gradients), "cross_entropy")
"""

# The shipped example's three questions; `sft_datum` is what the sampler drew, so both must know the same log-probs.
ASKING = """
from algorithms import forward_backward_payload, rl_datum, sft_datum
from deployments.examples.asking import greedy_reply, teacher_logprobs, trainer_logprobs

def build_loss(sample, cycle, request, ctx):
    prompt, one = request["prompt"]["token_ids"], sample["sequences"][0]
    now = trainer_logprobs(sft_datum(prompt, one["tokens"]), ctx)
    teacher = teacher_logprobs(prompt, one["tokens"], ctx)
    if cycle == 0:  # the teacher is the base model, and so is the policy
        assert all(abs(a - b) < 1e-3 for a, b in zip(now, one["logprobs"], strict=True)), (now, one["logprobs"])
        assert all(abs(a - b) < 1e-3 for a, b in zip(teacher, one["logprobs"], strict=True)), teacher
        again = greedy_reply(request, ctx)
        assert greedy_reply(request, ctx)["tokens"] == again["tokens"] != []
    advantages = [t - s - 1.0 for t, s in zip(teacher, now, strict=True)]
    datum = rl_datum(prompt, one["tokens"], one["logprobs"], advantages)
    return forward_backward_payload([datum], "importance_sampling")
"""


@pytest.fixture
def written(local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module outside the project, where Python finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:build_loss"

    return written


async def test_a_synchronous_function_trains_and_what_it_asks_is_billed_and_visible(
    written: Any, local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    config = tiny_config(
        "custom",
        tmp_path / "runs",
        state_id=(await taught("local"))["state_id"],
        build_loss=written("my_sync_loss", SYNC),
        teacher={"session": "own"},
    )
    summary = await flows.custom(config)
    billed = ledger(local, summary["flow_run_id"])
    assert billed["teacher"] == {"save_weights_for_sampler": 1, "logprobs": 16}
    assert (billed["policy"]["sample"], billed["policy"]["optim_step"]) == (4, 2)
    assert [row["datums"] for row in metrics(summary)] == [8, 8]
    assert summary["adapter_sha256"] != (await taught("local"))["adapter_sha256"]
    (block,) = [run for run in await descendants(summary["flow_run_id"]) if run.name == "cycles 1 to 2"]
    assert await count_tasks([block], "build_loss logprobs", 16) == 16


async def test_an_asynchronous_function_sends_its_own_gradient_by_weights(
    written: Any, local: GatewayProcess, taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_payloads(monkeypatch)
    config = tiny_config(
        "custom",
        tmp_path / "runs",
        state_id=(await taught("local"))["state_id"],
        build_loss=written("my_async_loss", ASYNC),
        loss_function="cross_entropy",
        cycles=6,
        data={"source": "addition-1digit", "limit": 2},
        optimizer={"learning_rate": 5e-3},
    )
    sent = len(payloads)
    summary = await flows.custom(config)
    operations = ledger(local, summary["flow_run_id"])["policy"]
    assert (operations["forward"], operations["sample"], operations["optim_step"]) == (12, 24, 6)
    (block,) = [run for run in await descendants(summary["flow_run_id"]) if run.name == "cycles 1 to 6"]
    assert await count_tasks([block], "build_loss forward", 12) == 12
    assert await count_tasks([block], "build_loss sample", 12) == 12
    steps = [payload for kind, payload in payloads[sent:] if kind == "forward_backward"]
    # −g = −2·lp: positive, and smaller as the greedy reply becomes certain.
    weights = [sum(sum(datum["loss_inputs"]["weights"]["values"]) for datum in step["data"]) for step in steps]
    assert weights[0] > 0
    assert weights[-1] < weights[0] / 2


async def test_what_the_page_says_a_function_may_ask_is_answered_as_it_says(
    written: Any, local: GatewayProcess, tmp_path: Path
) -> None:
    config = tiny_config("custom", tmp_path / "runs", build_loss=written("my_asking_loss", ASKING), teacher={})
    summary = await flows.custom(config)
    billed = ledger(local, summary["flow_run_id"])
    assert billed["teacher"]["logprobs"] == billed["policy"]["forward"] == 4
    assert [row["datums"] for row in metrics(summary)] == [2, 2]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ZeroDivisionError('on purpose')", r"ZeroDivisionError: on purpose|on purpose"),
        ("return [1, 2]", r"build_loss returned list: it must return a payload"),
        (
            "import algorithms; return {**algorithms.build_loss(sample, cycle, request, ctx), 'loss_function': 'ppo'}",
            r"build_loss asked for 'ppo', the configuration says loss_function = 'importance_sampling'",
        ),
        (
            "ctx.client.run_operation(ctx.run_id, 'optim_step', {})",
            r"build_loss may ask for forward, forward_backward, not 'optim_step'",
        ),
    ],
)
async def test_a_function_that_goes_wrong_fails_the_run_with_its_reason_and_closes_the_session(
    body: str, said: str, written: Any, taught: Taught, tmp_path: Path
) -> None:
    name = f"wrong_loss_{tmp_path.name}"  # a module that is imported once stays
    config = tiny_config(
        "custom",
        tmp_path / "runs",
        state_id=(await taught("local"))["state_id"],
        build_loss=written(name, f"def build_loss(sample, cycle, request, ctx):\n    {body}\n"),
        cycles=1,
    )
    flow_run_id, state = await first_attempt(flows.custom, config)
    with pytest.raises((ZeroDivisionError, ValueError), match=said):
        await state.result()
    (session,) = await sessions_of(flow_run_id)
    assert session.status == "closed"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module_here:build_loss", "no_such_module_here"),
        ("algorithms:no_such_function", "no_such_function"),
        ("algorithms:all_zero", r"it must be a module:function called as build_loss\(sample, cycle, request, ctx\)"),
    ],
)
async def test_a_function_that_cannot_be_called_is_refused_before_anything(
    name: str, said: str, local: GatewayProcess, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        await flows.custom(tiny_config("custom", tmp_path, build_loss=name))
    assert not list(tmp_path.iterdir())


async def test_a_group_too_small_for_the_advantages_of_this_projects_own_loss_is_refused_before_it_is_drawn(
    local: GatewayProcess, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"group_size = 1: build_loss is that of algorithms\.grpo, .*; take 2 or more"
    ):
        await flows.custom(tiny_config("custom", tmp_path, build_loss="algorithms:build_loss", group_size=1))
    assert not list(tmp_path.iterdir())


def test_groups_that_ask_for_different_loss_configs_are_an_error_and_equal_ones_are_joined() -> None:
    one = {"data": ["a"], "loss_function": "ppo", "loss_config": {"clip_low_threshold": 0.8}}
    assert join([one, {**one, "data": ["b"]}], "ppo").data == ["a", "b"]
    with pytest.raises(ValueError, match=r"for one group and .* for another: one optimizer step has one loss"):
        join([one, {**one, "loss_config": {"clip_low_threshold": 0.7}}], "ppo")


async def test_a_run_that_is_not_the_flows_is_refused() -> None:
    with pytest.raises(ValueError, match="run 'foreign' is not this flow's"):
        await OperationClient([]).run_operation("foreign", "forward", {})
    with pytest.raises(ValueError, match="'save_state' is no operation of a sampler"):
        await OperationClient([]).sampler_operation("foreign", "sampler", "save_state", {})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "    return next(one for one in sample['sequences'] if one['reward'] == 99)",
            "build_loss raised StopIteration",
        ),
        ("    raise SystemExit(0)", "build_loss raised SystemExit"),
        ("    return {'data': None, 'loss_function': 'importance_sampling'}", "data of type NoneType, not a list"),
        (
            "    return {'data': [{}], 'loss_function': 'importance_sampling', 'loss_config': {'a': float('nan')}}",
            "a loss_config that is not finite numbers by name",
        ),
    ],
)
async def test_what_cannot_pass_through_a_coroutine_is_told_and_the_session_closed(
    body: str, said: str, local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"odd_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"def build_loss(sample, cycle, request, ctx):\n{body}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((RuntimeError, ValueError), match=said):
        await flows.custom(tiny_config("custom", tmp_path / "runs", build_loss=f"{name}:build_loss", cycles=1))
    assert {status for _, status in await all_sessions()} == {"closed"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "async def build_loss(sample, cycle, request, ctx):\n    raise BaseException(KEY)",
            r"build_loss raised BaseException: \[key\]",
        ),
        (
            "def build_loss(sample, cycle, request, ctx):\n    return {'data': [], 'loss_function': KEY}",
            r"build_loss asked for '\[key\]'",
        ),
        (
            "def build_loss(sample, cycle, request, ctx):\n"
            "    return {'data': [], 'loss_function': 'importance_sampling', 'loss_config': {'a' * 60: KEY}}",
            r"a loss_config that is not finite numbers by name, \{'a{60}': '\[key\]'\}",
        ),
    ],
)
async def test_whichever_way_a_function_gives_the_key_away_the_run_fails_without_it(
    body: str, said: str, local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"telling_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"import os\nKEY = os.environ['WHITNEY_API_KEY']\n{body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((RuntimeError, ValueError), match=said) as failure:
        await flows.custom(tiny_config("custom", tmp_path / "runs", build_loss=f"{name}:build_loss", cycles=1))
    assert local.api_key not in "".join(traceback.format_exception(failure.value))
    assert {status for _, status in await all_sessions()} == {"closed"}


async def test_a_module_that_fails_at_import_is_the_configurations_mistake(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(4)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="build_loss = 'leaving:build_loss': SystemExit: 4"):
        await flows.custom(tiny_config("custom", tmp_path / "runs", build_loss="leaving:build_loss"))
