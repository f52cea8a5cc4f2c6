"""A user's `build_loss(sample, cycle, request, ctx)`: found, called once a group, its answers joined into one payload.

A synchronous function, as the cookbook's are, runs in a worker thread; what it asks of `ctx.client` becomes operation
tasks on the flow's event loop, so that it is ordered, billed once and visible like everything else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

from algorithms import Datum, NoGradientError
from flows.config import CustomConfig
from flows.config.user_function import BuildLoss
from flows.durable.cycles import Cycle
from flows.parts.user_thread import in_daemon_thread
from tasks.operations import current_sampler, run_operation, sampler_operation
from tasks.run import Run
from tasks.scoring import Group
from whitney.types import SAMPLER_KINDS

# The loop takes the step and saves: a second step in the middle of a cycle would leave the sampler's weights behind.
ALLOWED_RUN_KINDS = ("forward", "forward_backward")


CONTRACT = (
    "it must return a payload {data, loss_function, loss_config}, as algorithms.forward_backward_payload makes it"
)


@dataclass(frozen=True, slots=True)
class LossContext:
    """What `build_loss` is given beside the sample: the live client, and the ids its calls need."""

    client: OperationClient | BlockingClient
    run_id: str
    sampler_id: str
    provider: str
    teacher_run_id: str | None = None
    teacher_sampler_id: str | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """The data of one optimizer step, and the loss_config that every group agreed on."""

    data: list[Datum] = field(default_factory=list)
    loss_config: dict[str, float] = field(default_factory=dict)


class OperationClient:
    """`ctx.client` of an async `build_loss`: each call is an ordered operation, its answer the operation's result."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {run.run_id: run for run in runs}

    async def run_operation(self, run_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """`forward` or `forward_backward` on one of the flow's runs.

        Raises:
            ValueError: another kind, or a run that is not the flow's.
        """
        if kind not in ALLOWED_RUN_KINDS:
            raise ValueError(f"build_loss may ask for {', '.join(ALLOWED_RUN_KINDS)}, not {kind!r}: the loop does that")
        return (await run_operation(self._run(run_id), kind, payload, f"build_loss {kind}")).result

    async def sampler_operation(
        self, run_id: str, sampler_id: str, kind: str, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """`sample` or `logprobs` on a snapshot of one of the flow's runs.

        Raises:
            ValueError: as `run_operation`.
        """
        if kind not in SAMPLER_KINDS:
            raise ValueError(f"{kind!r} is no operation of a sampler; those are {', '.join(SAMPLER_KINDS)}")
        return (await sampler_operation(self._run(run_id), sampler_id, kind, payload, f"build_loss {kind}")).result

    def _run(self, run_id: str) -> Run:
        if run_id not in self._runs:
            raise ValueError(f"run {run_id!r} is not this flow's; ctx.run_id and ctx.teacher_run_id are")
        return self._runs[run_id]


class BlockingClient:
    """The same for a synchronous `build_loss`, to be called from its thread."""

    __slots__ = ("_client", "_loop")

    def __init__(self, client: OperationClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def run_operation(self, run_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """As `OperationClient.run_operation`; waits for the answer."""
        return self._wait(self._client.run_operation(run_id, kind, payload))

    def sampler_operation(self, run_id: str, sampler_id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """As `OperationClient.sampler_operation`; waits for the answer."""
        return self._wait(self._client.sampler_operation(run_id, sampler_id, kind, payload))

    def _wait(self, asked: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        async def answer() -> dict[str, Any]:
            return await asked

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()


async def build_payload(
    cycle: Cycle, config: CustomConfig, build_loss: BuildLoss, groups: Sequence[Group], teacher: Run | None
) -> Payload:
    """Call `build_loss` for each group in turn and join what it returns into one optimizer step.

    A group for which it raises NoGradientError is left out and counted.

    Raises:
        ValueError: payloads that ask for another loss than `loss_function`, or for different loss_configs.
    """
    runs = [cycle.policy, *([teacher] if teacher else [])]
    client: OperationClient | BlockingClient = OperationClient(runs)
    if not is_async(build_loss):
        client = BlockingClient(OperationClient(runs), asyncio.get_running_loop())
    ctx = LossContext(
        client=client,
        run_id=cycle.policy.run_id,
        sampler_id=await current_sampler(cycle.policy),
        provider=config.model.provider,
        teacher_run_id=teacher.run_id if teacher else None,
        teacher_sampler_id=await current_sampler(teacher) if teacher else None,
    )
    payloads = []
    for group in groups:
        sample = {
            "sequences": [
                {**sequence, "reward": reward} for sequence, reward in zip(group.sequences, group.rewards, strict=True)
            ]
        }
        try:
            payloads.append(await _call(build_loss, sample, cycle.number, group.request, ctx))
        except NoGradientError:
            cycle.count_dropped({"no_gradient": len(group.sequences)})
    return join(payloads, config.loss_function)


def is_async(function: BuildLoss) -> bool:
    """Whether calling it gives an awaitable: a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _call(
    build_loss: BuildLoss, sample: dict[str, Any], cycle: int, request: dict[str, Any], ctx: LossContext
) -> dict[str, Any]:
    if is_async(build_loss):
        try:
            answer = await build_loss(sample, cycle, request, ctx)
        except SystemExit as error:  # it would end the process, and look like a run that went well
            raise RuntimeError("build_loss raised SystemExit") from error
    else:
        answer = await in_daemon_thread("build_loss", partial(build_loss, sample, cycle, request, ctx))
    if not isinstance(answer, dict) or not {"data", "loss_function"} <= answer.keys():
        raise ValueError(f"build_loss returned {type(answer).__name__}: {CONTRACT}")
    config = answer.get("loss_config") or {}
    problem = None
    if not isinstance(answer["data"], list):
        problem = f"data of type {type(answer['data']).__name__}, not a list"
    elif not isinstance(config, dict) or not all(isinstance(v, int | float) and isfinite(v) for v in config.values()):
        problem = f"a loss_config that is not finite numbers by name, {str(config)[:80]}"
    if problem:
        raise ValueError(f"build_loss returned {problem}: {CONTRACT}")
    return answer


def join(payloads: Sequence[dict[str, Any]], loss_function: str) -> Payload:
    """One payload of all groups'. Two losses, or two loss_configs, within one step are an error: modal would mix them.

    Raises:
        ValueError: as `build_payload`.
    """
    joined: Payload | None = None
    for payload in payloads:
        if payload["loss_function"] != loss_function:
            raise ValueError(
                f"build_loss asked for {payload['loss_function']!r}, the configuration says loss_function = "
                f"{loss_function!r}: they must agree, since the provider is checked before anything is allocated"
            )
        loss_config = dict(payload.get("loss_config") or {})
        if joined is None:
            joined = Payload([], loss_config)
        if loss_config != joined.loss_config:
            raise ValueError(
                f"build_loss returned loss_config {loss_config} for one group and {joined.loss_config} for another: "
                "one optimizer step has one loss"
            )
        joined.data.extend(payload["data"])
    return joined or Payload()
