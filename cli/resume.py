"""`whitney run --resume`: the same flow run once more, in this process, as the UI's Retry does for a deployment's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.states import AwaitingRetry
from rich.console import Console

from cli.earlier_run import WRITTEN_AGAIN, EarlierRun
from cli.endpoint_again import endpoint_again
from cli.failures import UsageError, interruptible
from cli.find_run import find_run
from cli.prefect_api import prefect_api
from cli.run_data import Endpoints, PrefectAt, WhitneyAt, stopped_by_budget
from cli.summary import show_summary, summary_lines
from cli.terminal import sayer
from cli.training import FlowCall, watch
from flows.checks.drift import ALLOW_DRIFT
from flows.load_config import with_overrides
from tasks.credentials import settings_for
from whitney.client import WhitneyClient
from whitney.errors import NotFoundError


def resume(
    run: Path,
    path: Path | None,
    overrides: Sequence[str],
    *,
    allow_drift: bool,
    embedded: bool | None,
    console: Console,
) -> None:
    """Go on with a run that did not end well, or that its budget has stopped and may spend more now; show its summary.

    Of one that is finished, only show it.

    Raises:
        UsageError: it cannot go on as asked; nothing has been started.
        RunFailedError, KeyboardInterrupt: as `cli.training.watch`.
    """
    earlier = find_run(run, _output_dir(overrides)).asking(path, overrides)
    if earlier.summary is not None and earlier.is_over:
        earlier.require_as_it_is()
        told = _summary_told(earlier.folder / "summary.json", earlier.summary)
        for line in (_why_over(earlier), *told):
            sayer(console)(line)
        return
    earlier.require_allowed(allow_drift=allow_drift)
    earlier.require_resumable(embedded=embedded)
    earlier.check_inputs()
    with interruptible(), _drift_allowed() if allow_drift else nullcontext():
        summary = _retry(earlier, console)
    show_summary(summary, console)


def _why_over(earlier: EarlierRun[Any]) -> str:
    if limit := stopped_by_budget(earlier.summary):
        return f"{earlier.folder} was stopped by {limit}, nothing was allocated; to go on: --set {limit}=MORE"
    return f"{earlier.folder} is finished: nothing to go on with, nothing was allocated"


def _summary_told(path: Path, summary: dict[str, Any]) -> list[str]:
    try:
        return list(summary_lines(summary))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} is not as a run leaves it: {type(error).__name__} {error}; {WRITTEN_AGAIN}"
        ) from error


def _output_dir(overrides: Sequence[str]) -> Path | None:
    """Where a run is looked for by its name: as `--set output_dir=…` says."""
    named = with_overrides({}, overrides).get("output_dir")
    return Path(named) if isinstance(named, str) else None


def _retry(earlier: EarlierRun[Any], console: Console) -> dict[str, Any]:
    say = sayer(console)
    former = earlier.endpoints
    with ExitStack() as stack:
        prefect = stack.enter_context(prefect_api(say, former.prefect if former else None))
        whitney = None
        if earlier.asked.credentials_block is None:
            whitney = endpoint_again(stack, earlier.asked, former, say)
        endpoints = Endpoints.of(prefect, whitney)
        return watch(lambda: _again(earlier, prefect, whitney), console, endpoints, earlier.folder)


async def _again(earlier: EarlierRun[Any], prefect: PrefectAt, whitney: WhitneyAt | None) -> dict[str, Any]:
    """Look for what the run needs, then run it.

    Raises:
        UsageError: its flow run or its states are elsewhere.
    """
    await _require_states(earlier, whitney)
    flow_run = await _awaiting_retry(earlier, prefect)
    return await cast("FlowCall", run_flow(earlier.flow, flow_run=flow_run))


async def _require_states(earlier: EarlierRun[Any], whitney: WhitneyAt | None) -> None:
    """Refuse an endpoint other than the run's that has not got its state. What its own has lost the flow tells."""
    began_at = earlier.endpoints.whitney_base_url if earlier.endpoints else None
    newest = earlier.newest_state
    if whitney is None or whitney.data_dir or whitney.base_url == began_at or newest is None:
        return
    async with WhitneyClient(settings_for(earlier.asked.credentials_block)) as client:
        try:
            await client.get_state(newest.state_id)
        except NotFoundError:
            raise UsageError(
                f"{whitney.base_url} has no state {newest.state_id}, which {newest.where} ended in: name the endpoint "
                f"it was trained at{f', {began_at}' if began_at else ''}, by WHITNEY_BASE_URL"
            ) from None


async def _awaiting_retry(earlier: EarlierRun[Any], prefect: PrefectAt) -> FlowRun:
    """The flow run, scheduled as the UI's Retry does it.

    Raises:
        UsageError: that Prefect server does not know it; it is a deployment's, whose worker would run it, too; or its
            folder was renamed.
    """
    async with get_client() as api:
        try:
            flow_run = await api.read_flow_run(earlier.flow_run_id)
        except ObjectNotFound:
            began_at = earlier.endpoints.prefect_api_url if earlier.endpoints else None
            raise UsageError(
                f"the Prefect server at {prefect.shown} does not know flow run {earlier.flow_run_id}: name the "
                f"one the run began with{f', {began_at}' if began_at else ''}, by PREFECT_API_URL"
            ) from None
        if flow_run.deployment_id is not None:
            raise UsageError(
                f"{earlier.folder} is a deployment's run: press Retry on {flow_run.name} in the Prefect UI"
            )
        earlier.require_in_place(earlier.asked.name or flow_run.name)
        if earlier.asked != earlier.config:
            parameters = {**flow_run.parameters, "config": earlier.asked.model_dump(mode="json")}
            await api.update_flow_run(flow_run.id, parameters=parameters)
        await api.set_flow_run_state(flow_run.id, AwaitingRetry(), force=True)
        return await api.read_flow_run(flow_run.id)


@contextmanager
def _drift_allowed() -> Iterator[None]:
    """`--allow-drift` holds for the recorded data, template and model too, which the flow itself compares."""
    former = os.environ.get(ALLOW_DRIFT)
    os.environ[ALLOW_DRIFT] = "1"
    try:
        yield
    finally:
        if former is None:
            del os.environ[ALLOW_DRIFT]
        else:
            os.environ[ALLOW_DRIFT] = former
