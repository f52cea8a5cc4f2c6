"""`whitney run --resume`: the same flow run once more, in this process; a deployment's is left to its worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

from prefect.flow_engine import run_flow
from rich.console import Console

from cli.earlier_run import WRITTEN_AGAIN, EarlierRun
from cli.endpoint_again import endpoint_again
from cli.failures import UsageError, interruptible
from cli.find_run import find_run
from cli.flow_run_again import awaiting_retry
from cli.left_to_worker import left_to_worker, taken_back
from cli.prefect_api import known_prefect, prefect_api
from cli.run_data import Endpoints, PrefectAt, WhitneyAt
from cli.summary import show_summary, summary_lines
from cli.terminal import sayer
from cli.training import FlowCall, watch
from flows.checks.drift import ALLOW_DRIFT
from flows.load_config import with_overrides
from tasks.credentials import settings_for
from tasks.stopped import stopped_by_budget
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

    Of one that is finished, only show it. A deployment's run is scheduled for its worker, and not waited for.

    Raises:
        UsageError: it cannot go on as asked; nothing has been started.
        RunFailedError, KeyboardInterrupt: as `cli.training.watch`.
    """
    earlier = find_run(run, _output_dir(overrides)).asking(path, overrides)
    with _summary_as_it_was_left(earlier):
        if earlier.summary is not None and earlier.is_over:
            earlier.require_as_it_is()
            by_name = path is not None or any(override.startswith("budget.") for override in overrides)
            back = taken_back(earlier, by_name=by_name) if stopped_by_budget(earlier.summary) else None
            for line in (*([back] if back else []), _why_over(earlier), *summary_lines(earlier.summary)):
                sayer(console)(line)
            return
        earlier.require_budget()
    earlier.require_allowed(allow_drift=allow_drift)
    earlier.require_resumable(embedded=embedded)
    earlier.check_inputs()
    if caution := earlier.likely_too_little():
        sayer(console)(caution)
    with interruptible(), _drift_allowed() if allow_drift else nullcontext():
        summary = _retry(earlier, console, allow_drift=allow_drift)
    if summary is not None:
        show_summary(summary, console)


def _why_over(earlier: EarlierRun[Any]) -> str:
    if limit := stopped_by_budget(earlier.summary):
        return f"{earlier.folder} was stopped by {limit}, and has no more of it now: nothing was allocated"
    return f"{earlier.folder} is finished: nothing to go on with, nothing was allocated"


@contextmanager
def _summary_as_it_was_left(earlier: EarlierRun[Any]) -> Iterator[None]:
    """Raises UsageError where what a block reads of the summary is not there, or is not what a run writes."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        path = earlier.folder / "summary.json"
        raise UsageError(
            f"{path} is not as a run leaves it: {type(error).__name__} {error}; {WRITTEN_AGAIN}"
        ) from error


def _output_dir(overrides: Sequence[str]) -> Path | None:
    """Where a run is looked for by its name: as `--set output_dir=…` says."""
    named = with_overrides({}, overrides).get("output_dir")
    return Path(named) if isinstance(named, str) else None


def _retry(earlier: EarlierRun[Any], console: Console, *, allow_drift: bool) -> dict[str, Any] | None:
    """The summary, once it has ended; None where a worker goes on with it."""
    say = sayer(console)
    former = earlier.endpoints
    _require_prefect(earlier)
    with ExitStack() as stack:
        prefect = stack.enter_context(prefect_api(say, former.prefect if former else None))
        if told := left_to_worker(earlier, allow_drift=allow_drift):
            for line in told:
                say(line)
            return None
        whitney = None
        if earlier.asked.credentials_block is None:
            whitney = endpoint_again(stack, earlier.asked, former, say)
        endpoints = Endpoints.of(prefect, whitney)
        return watch(lambda: _again(earlier, prefect, whitney), console, endpoints, earlier.folder)


def _require_prefect(earlier: EarlierRun[Any]) -> None:
    """Raises UsageError where nobody knows where the flow run is: a server of this run's own would not know it."""
    if earlier.endpoints is not None:
        return
    with known_prefect() as known:
        if known is None:
            raise UsageError(
                f"{earlier.folder} was not begun by `whitney run`: name the Prefect server that knows its flow run, by "
                "PREFECT_API_URL"
            )


async def _again(earlier: EarlierRun[Any], prefect: PrefectAt, whitney: WhitneyAt | None) -> dict[str, Any]:
    """Look for what the run needs, then run it.

    Raises:
        UsageError: its flow run or its states are elsewhere.
    """
    await _require_states(earlier, whitney)
    flow_run = await awaiting_retry(earlier, prefect)
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
