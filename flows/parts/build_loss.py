"""A user's `build_loss(sample, cycle, request, ctx)`: found, called once a group, its answers joined into one payload.

A synchronous function, as the cookbook's are, runs in a worker thread; what it asks of `ctx.client` becomes operation
tasks on the flow's event loop, so that it is ordered, billed once and visible like everything else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

from prefect.exceptions import ExternalSignal, PrefectSignal
from pydantic import SecretStr

from algorithms import Datum, NoGradientError
from flows.config import CustomConfig
from flows.config.user_function import BuildLoss
from flows.durable.cycles import Cycle
from flows.parts.loss_context import BlockingClient, LossContext, OperationClient
from flows.parts.user_thread import as_failure, in_daemon_thread
from tasks.operations import current_sampler
from tasks.redaction import keyless, redact
from tasks.run import Run
from tasks.scoring import Group

CONTRACT = (
    "it must return a payload {data, loss_function, loss_config}, as algorithms.forward_backward_payload makes it"
)


@dataclass(frozen=True, slots=True)
class Payload:
    """The data of one optimizer step, and the loss_config that every group agreed on."""

    data: list[Datum] = field(default_factory=list)
    loss_config: dict[str, float] = field(default_factory=dict)


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
    key = cycle.attempt.client.settings.api_key
    try:
        payloads = []
        for group in groups:
            sample = _sample(group)
            try:
                answer = await _call(build_loss, sample, cycle.number, group.request, ctx)
            except NoGradientError:
                cycle.count_dropped({"no_gradient": len(group.sequences)})
            else:
                payloads.append(_payload(answer, key))
        return join(payloads, config.loss_function)
    except Exception as error:
        told = keyless(error, key)
        if told is error:
            raise
        raise told from None  # build_loss can read the key; what a flow raises is stored


def _sample(group: Group) -> dict[str, Any]:
    rewarded = zip(group.sequences, group.rewards, strict=True)
    return {"sequences": [{**sequence, "reward": reward} for sequence, reward in rewarded]}


def is_async(function: BuildLoss) -> bool:
    """Whether calling it gives an awaitable: a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _call(
    build_loss: BuildLoss, sample: dict[str, Any], cycle: int, request: dict[str, Any], ctx: LossContext
) -> Any:
    if not is_async(build_loss):
        return await in_daemon_thread("build_loss", partial(build_loss, sample, cycle, request, ctx))
    try:
        return await build_loss(sample, cycle, request, ctx)
    except BaseException as error:
        if isinstance(error, Exception) or _is_order_to_stop(error):
            raise
        # SystemExit would end the process and look like a run that went well; any other would be stored as it is.
        raise as_failure("build_loss", error) from error


def _payload(answer: Any, key: SecretStr) -> dict[str, Any]:
    """`answer`, if it is what build_loss has to return."""
    if not isinstance(answer, dict) or not {"data", "loss_function"} <= answer.keys():
        raise ValueError(f"build_loss returned {type(answer).__name__}: {CONTRACT}")
    config = answer.get("loss_config") or {}
    problem = None
    if not isinstance(answer["data"], list):
        problem = f"data of type {type(answer['data']).__name__}, not a list"
    elif not isinstance(config, dict) or not all(isinstance(v, int | float) and isfinite(v) for v in config.values()):
        problem = f"a loss_config that is not finite numbers by name, {redact(str(config), key)[:80]}"
    if problem:
        raise ValueError(f"build_loss returned {problem}: {CONTRACT}")
    return answer


def _is_order_to_stop(error: BaseException) -> bool:
    """Whether it comes from outside: nobody has cancelled the flow where the function lets a CancelledError out."""
    if isinstance(error, asyncio.CancelledError):
        flow = asyncio.current_task()
        return flow is not None and flow.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit | ExternalSignal | PrefectSignal)


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
