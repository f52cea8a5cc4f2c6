"""A finished block whose saved state is lost is no finished block: it is revoked, and trained again.

Prefect hands a Retry the outcome of every completed child. When the state that such an outcome names has been truncated
on disk, or deleted, the run could not go on from it, now or ever. So before anything runs, a Retry walks back from the
newest block to the newest one whose states are complete, and takes the completion of what lies behind it back: those
children are set to Crashed, which Prefect answers with new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum

from prefect.client.orchestration import get_client
from prefect.states import Crashed

from algorithms.puct import Buffer
from flows.config import ConfigError
from flows.durable.children import Child, completed_children
from flows.durable.outcome import BlockOutcome, EvaluationOutcome, ExportOutcome
from flows.durable.telling import warn
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.errors import NotFoundError


class Problem(StrEnum):
    """Why a state cannot be gone on from."""

    GONE = "is gone: it was deleted, or is past the endpoint's retention"
    DAMAGED = "is not complete: its file is not as it was saved"
    FORGOTTEN = "goes with a buffer of solutions that is missing from the run folder, or not as it was saved"


class Left(Enum):
    """What a Retry goes on from."""

    EXPORTED = "all is trained and exported: no weights are needed any more"
    SAVED = "a state of its own"
    NOTHING = "its initial weights"


async def revoke_lost_blocks(client: WhitneyClient, folder: RunFolder) -> Left:
    """Make sure that the newest block a Retry will adopt can be gone on from; what there is to go on from.

    Raises:
        ConfigError: none can: the states have expired or were deleted. Or a finished block's result cannot be read.
        WhitneyError: the endpoint cannot be asked.
    """
    children = await completed_children(folder.flow_run_id)
    if any(isinstance(child.outcome, ExportOutcome) and child.outcome.final for child in children):
        return Left.EXPORTED
    blocks = sorted(
        (child for child in children if isinstance(child.outcome, BlockOutcome)), key=lambda child: child.outcome.block
    )
    lost: list[tuple[Child, Problem]] = []
    while blocks and (problem := await _problem(client, folder, blocks[-1].outcome)):
        lost.append((blocks.pop(), problem))
    left = Left.SAVED if blocks else Left.NOTHING
    if not lost:
        return left
    if not blocks and any(problem is Problem.GONE for _, problem in lost):
        newest, why = lost[0]
        raise ConfigError(
            f"there is nothing left to go on from. State {newest.outcome.state_id} of cycle {newest.outcome.cycle + 1} "
            f"{why}; none of an earlier cycle can be used either. Start a new run; `keep_states` says how many states "
            "a run keeps, and the endpoint's retention for how long (`whitney serve --keep-days`)"
        )
    gone = {child.outcome.state_id for child, _ in lost}
    measured = [
        (child, "it measured one of these states")
        for child in children
        if isinstance(child.outcome, EvaluationOutcome) and child.outcome.state_id in gone
    ]
    await _revoke(lost, measured, blocks[-1].outcome if blocks else None)
    return left


async def _problem(client: WhitneyClient, folder: RunFolder, outcome: BlockOutcome) -> Problem | None:
    for state_id in outcome.state_ids:
        try:
            state = await client.get_state(state_id)
        except NotFoundError:
            return Problem.GONE
        if not state.complete:
            return Problem.DAMAGED
    return None if _is_remembered(folder, outcome) else Problem.FORGOTTEN


def _is_remembered(folder: RunFolder, outcome: BlockOutcome) -> bool:
    """Whether the buffer that an outcome carries by reference (test-time training's) is the one that was saved."""
    name = outcome.carry.get("buffer")
    if name is None:
        return True
    saved = folder.read_buffer(name)
    try:
        return saved is not None and Buffer.from_json(saved).fingerprint == outcome.carry["fingerprint"]
    except (AttributeError, KeyError, TypeError, ValueError):  # whatever stands in that file, it is no buffer
        return False


async def _revoke(
    lost: Sequence[tuple[Child, str]], measured: Sequence[tuple[Child, str]], usable: BlockOutcome | None
) -> None:
    going_on = f"state {usable.state_id} of cycle {usable.cycle + 1}" if usable else "the initial weights"
    for child, why in lost:
        warn(f"state {child.outcome.state_id} of cycle {child.outcome.cycle + 1} {why}: skipped")
    again = "1 finished block is" if len(lost) == 1 else f"{len(lost)} finished blocks are"
    warn(f"going on from {going_on}; {again} trained again")
    async with get_client() as api:
        for child, why in (*lost, *measured):
            await api.set_flow_run_state(child.flow_run_id, Crashed(message=f"revoked by a Retry: {why}"), force=True)
