"""What the Prefect server does by itself: mark dead runs, tell a person. No cloud is needed.

Flow runs of deployments only: their subflows fail with them, and `whitney run` has somebody in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture

from deployments.changes import Change
from deployments.names import TAG
from tasks.verdicts import LEFT_OPEN

SILENCE = timedelta(seconds=120)
"""Four of a run's heartbeats, as `prefect.yaml` sets them: one that is late is no death."""

HEARTBEAT = "prefect.flow-run.heartbeat"
ANY_NEWS = "prefect.flow-run.*"
"""A heartbeat or a change of state, whatever the state is called: ends and pauses have names of their own."""

OF_A_DEPLOYMENT = [
    {"prefect.resource.role": "deployment"},
    {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"},
]
NOT_THE_REAPER = {"prefect.resource.role": "flow", "prefect.resource.name": "!reap"}

SUBJECT = "Whitney: {{ flow_run.name }} ({{ flow.name }}) is {{ event.resource['prefect.state-name'] }}"
PAGE = "{{ flow_run|ui_url or flow_run.id }}"  # PREFECT_UI_URL of the server's environment, if it has one
BODY = "{{ event.resource['prefect.state-message'] }}\n" + PAGE


def zombies(silence: timedelta = SILENCE) -> AutomationCore:
    """A run that has beaten and beats no more, without having ended or paused, is Crashed.

    Where the runner lives it says so itself, within seconds; this is for a machine that went with everything on it.
    The state is what the reaper goes by, and Retry. A suspended run is silent too, and well. One that is being
    cancelled when its machine goes stays Cancelling: the change is news, and no heartbeat follows.
    """
    told = (
        f"No heartbeat for {silence.total_seconds():g} s: the process is gone. Retry goes on from the last saved block."
    )
    return AutomationCore(
        name="Whitney: zombie runs → crashed",
        description="Runs of deployments whose machine is gone, or hangs.",
        trigger=EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=list(OF_A_DEPLOYMENT),
            for_each={"prefect.resource.id"},
            after={HEARTBEAT},
            expect={ANY_NEWS},
            posture=Posture.Proactive,
            threshold=1,
            within=silence,
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=told)],
    )


def alerts(block_document_id: UUID) -> list[AutomationCore]:
    """What a person is told, by the notification block of that id."""

    def tell(name: str, description: str, trigger: EventTrigger, subject: str, body: str) -> AutomationCore:
        send = SendNotification(block_document_id=block_document_id, subject=subject, body=body)
        return AutomationCore(name=f"Whitney: {name}", description=description, trigger=trigger, actions=[send])

    failed = _becomes(StateType.FAILED, StateType.CRASHED)
    finished = _becomes(StateType.COMPLETED, but_for=[NOT_THE_REAPER])
    left_open = EventTrigger(expect={LEFT_OPEN}, posture=Posture.Reactive, threshold=1, within=timedelta(0))
    return [
        tell("a run failed", "Also the reaper's own.", failed, SUBJECT, BODY),
        tell("a run finished", "The reaper's are not told.", finished, SUBJECT, BODY),
        tell(
            "a run waits for a person",
            "An approval, or a gate of a pipeline.",
            _becomes(StateType.PAUSED),
            SUBJECT,
            "Go on, or decline: Resume on " + PAGE,
        ),
        tell(
            "a session could not be closed",
            "It bills until somebody closes it, the reaper for one.",
            left_open,
            "Whitney: session {{ event.resource.name }} could not be closed",
            "{{ event.payload.message }}",
        ),
    ]


def _becomes(*states: StateType, but_for: Iterable[dict[str, str]] = ()) -> EventTrigger:
    """A run of a deployment comes into one of these states; their types: names vary."""
    return EventTrigger(
        match={
            "prefect.resource.id": "prefect.flow-run.*",
            "prefect.state-type": [state.value for state in states],
        },
        match_related=[*OF_A_DEPLOYMENT, *but_for],
        expect={ANY_NEWS},
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )


def automate(api: SyncPrefectClient, wanted: AutomationCore, *, dry_run: bool = False) -> Change:
    """Create an automation, or change the one of that name; one that was switched off stays off."""
    there = _only(api, wanted.name, dry_run=dry_run)
    if there is None:
        if not dry_run:
            api.create_automation(wanted)
            _only(api, wanted.name)  # another `whitney deploy` may have looked, and created one, at the same time
        return Change("automation", wanted.name, "created")
    wanted = wanted.model_copy(update={"enabled": there.enabled})
    state = ("enabled",) if there.enabled else ("switched off",)
    if _plain(there) == _plain(wanted):
        return Change("automation", wanted.name, "unchanged", state)
    if not dry_run:
        api.update_automation(there.id, wanted)
    return Change("automation", wanted.name, "changed", state)


def _only(api: SyncPrefectClient, name: str, *, dry_run: bool = False) -> Automation | None:
    """The automation of that name, if there is one. Others of it are deleted: each would tell a person once more.

    Which one is left goes by their ids, so that of two deploys at once neither deletes what the other leaves.
    """
    found = sorted(api.read_automations_by_name(name), key=lambda automation: automation.id)
    for other in () if dry_run else found[1:]:
        api.delete_automation(other.id)
    return next(iter(found), None)


def _plain(automation: AutomationCore) -> dict[str, Any]:
    return AutomationCore.model_validate(automation.model_dump(exclude={"id"})).model_dump(
        mode="json", exclude={"owner_resource"}
    )
