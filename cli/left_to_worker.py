"""A deployment's run: scheduled once more for its worker with what is asked for, or taken back before one begins."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import StateCreate
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry
from pydantic import ValidationError

from cli.earlier_run import EarlierRun
from cli.failures import UsageError
from cli.prefect_answers import is_up
from cli.prefect_api import known_prefect
from cli.prefect_setup import flow_run_page
from flows.config.budget import OF_THE_RUN
from tasks.stopped import digits, stopped_by_budget


def left_to_worker(earlier: EarlierRun[Any], *, allow_drift: bool) -> list[str]:
    """What to say of a deployment's run, now that a worker will go on with it; empty of any other run.

    The UI's Retry does the same, but for two things: it changes no parameter, and refuses a run that has Completed, as
    one has that its budget has stopped.

    Raises:
        UsageError: it has not ended, its deployment is gone, its folder was renamed, or drift is to be allowed, which
            only its worker can.
    """
    with get_client(sync_client=True) as api:
        flow_run = _of_a_deployment(api, earlier)
        if flow_run is None:
            return []
        if allow_drift:
            raise UsageError(_no_drift(earlier))
        _require_deployment(api, earlier, flow_run)
        _require_ended(earlier, flow_run)
        earlier.require_in_place(earlier.asked.name or flow_run.name)
        _schedule(api, earlier, flow_run)
    return list(_told(earlier, flow_run))


def taken_back(earlier: EarlierRun[Any], *, by_name: bool) -> str | None:
    """That a run which its budget has stopped, and which was scheduled with another, stays as it is, in a sentence.

    None where it is not scheduled. `by_name`: the budget that has stopped it is asked for once more. Else a resume that
    asks for nothing would undo the one before.

    Raises:
        UsageError: it is scheduled with another budget, or somebody is at work on it.
    """
    if earlier.endpoints is not None:  # begun by `whitney run`: no worker's
        return None
    with known_prefect() as known:
        if known is None or not is_up(known.api_url):
            return None
        with get_client(sync_client=True) as api:
            flow_run = _of_a_deployment(api, earlier)
            if flow_run is None or flow_run.state is None or flow_run.state.is_final():
                return None
            _require_ended(earlier, flow_run)
            if not by_name:
                raise UsageError(_is_scheduled(earlier, flow_run))
            _put_back(api, earlier, flow_run)
    return f"{earlier.folder} was scheduled, and is taken back: no worker goes on with it"


def _of_a_deployment(api: SyncPrefectClient, earlier: EarlierRun[Any]) -> FlowRun | None:
    try:
        flow_run = api.read_flow_run(earlier.flow_run_id)
    except Exception:  # unknown there, or nobody answers: what is done next meets it again, and tells it
        return None
    return flow_run if flow_run.deployment_id is not None else None


def _no_drift(earlier: EarlierRun[Any]) -> str:
    told = f"--allow-drift: {earlier.folder} is a deployment's run, and its worker looks for drift itself. "
    if earlier.differences():
        return f"{told}Start a new run, or change the deployment (`whitney deploy`) and start a run of that"
    return f"{told}Give the worker WHITNEY_ALLOW_DRIFT=1 in its environment, and leave the option out"


def _require_deployment(api: SyncPrefectClient, earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    """Raises UsageError where the deployment has been deleted: a worker would never begin."""
    assert flow_run.deployment_id is not None
    try:
        api.read_deployment(flow_run.deployment_id)
    except ObjectNotFound:
        raise UsageError(
            f"{earlier.folder} is the run of a deployment that has been deleted: no worker can go on with it, and "
            f"nothing was scheduled. Deploy it again (`whitney deploy`), and start a new run. {earlier.to_train_on}"
        ) from None


def _require_ended(earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    """Raises UsageError where somebody is at work on it, or waits for a word."""
    state = flow_run.state
    if state is None or state.is_final() or state.is_scheduled():  # scheduled before: it may have other parameters now
        return
    page = flow_run_page(str(flow_run.id)) or flow_run.name
    if state.is_paused():
        raise UsageError(f"{earlier.folder} waits for a person's answer: Resume on {page} gives it")
    raise UsageError(
        f"{earlier.folder} has not ended, its flow run is {state.name}: wait for it, or Cancel it on {page}"
    )


def _schedule(api: SyncPrefectClient, earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    """With the configuration that is asked for, which is there before a worker can begin.

    Raises:
        UsageError: a worker has begun in between, with it as it was.
    """
    changed = _config_there(earlier, flow_run) != earlier.asked
    if changed:
        _set_config(api, earlier, flow_run)
    state = api.read_flow_run(flow_run.id).state
    if state is None or state.is_final():
        api.set_flow_run_state(flow_run.id, AwaitingRetry(), force=True)  # one that has Completed is kept otherwise
    elif not state.is_scheduled():
        if changed:
            api.update_flow_run(flow_run.id, parameters=flow_run.parameters)
        raise UsageError(f"a worker has just begun with {earlier.folder}, and nothing was changed: wait for its end")


def _config_there(earlier: EarlierRun[Any], flow_run: FlowRun) -> Any:
    """What a worker would run it with; None where that is no configuration."""
    try:
        return type(earlier.asked).model_validate(flow_run.parameters.get("config"))
    except ValidationError:
        return None


def _set_config(api: SyncPrefectClient, earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    parameters = {**flow_run.parameters, "config": earlier.asked.model_dump(mode="json")}
    api.update_flow_run(flow_run.id, parameters=parameters)


def _put_back(api: SyncPrefectClient, earlier: EarlierRun[Any], flow_run: FlowRun) -> None:
    """As it was before it was scheduled: the configuration, and the state that it had ended in."""
    _set_config(api, earlier, flow_run)
    ended = [state for state in api.read_flow_run_states(flow_run.id) if state.is_final()]
    if ended:
        last: State[Any] = max(ended, key=lambda state: state.timestamp)
        state = StateCreate(type=last.type, name=last.name, message=last.message, data=last.data)
        # By the route: the client's own method leaves out where the result is kept, and the run would have none.
        told = {"state": state.model_dump(mode="json", serialize_as_any=True), "force": False}
        api.request("POST", "/flow_runs/{id}/set_state", path_params={"id": flow_run.id}, json=told)


def _is_scheduled(earlier: EarlierRun[Any], flow_run: FlowRun) -> str:
    """What the server has, and how it is taken back."""
    there, reached = _config_there(earlier, flow_run), stopped_by_budget(earlier.summary)
    former = earlier.config.budget.limits(OF_THE_RUN).get(str(reached).removeprefix("budget."))
    told = f"{earlier.folder} is scheduled already, with {_limits_told(there)}: a worker goes on with it"
    if former is None:
        return told
    run = shlex.quote(str(earlier.folder))
    return f"{told}. To take that back: whitney run --resume {run} --set {reached}={digits(former)}"


def _limits_told(config: Any) -> str:
    limits = config.budget.limits(OF_THE_RUN) if config else {}
    return ", ".join(f"budget.{field} = {digits(limit)}" for field, limit in limits.items()) or "no limit"


def _told(earlier: EarlierRun[Any], flow_run: FlowRun) -> Iterator[str]:
    yield f"{earlier.folder} is a deployment's run. Scheduled: a worker goes on with it, nothing runs here"
    if _config_there(earlier, flow_run) != earlier.asked:
        yield f"Budget:    {_limits_told(earlier.asked)}"
    if page := flow_run_page(str(flow_run.id)):
        yield f"Prefect:   {page}"
