"""A finished block that the run cannot go on from is no finished block: it is revoked, and trained again.

Prefect hands a Retry the outcome of every completed child. When the state that such an outcome names has been truncated
on disk, or deleted, the run could not go on from it, now or ever; nor where the block before it is trained again, to
another state. So before anything runs, a Retry walks back from the newest block to the newest one that can be gone on
from, and takes the completion of what lies behind it back: those children are set to Crashed, which Prefect answers
with new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.states import Crashed

from algorithms.puct import Buffer
from flows.config import ConfigError
from flows.durable.children import Child, completed_children
from flows.durable.lineage import unbroken
from flows.durable.outcome import BlockOutcome, EvaluationOutcome, ExportOutcome
from flows.durable.telling import warn
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.errors import NotFoundError


class Problem(StrEnum):
    """Why a state cannot be gone on from."""

    GONE = "is gone: it was deleted, or is past the endpoint's retention"
    DAMAGED = "is not complete: its file is not as it was saved"
    ASTRAY = "was trained from a block that did not end well, and is trained again"
    FORGOTTEN = "goes with a buffer of solutions that is missing from the run folder, or not as it was saved"


class Left(Enum):
    """What a Retry goes on from."""

    EXPORTED = "all is trained and exported: no weights are needed any more"
    SAVED = "a state of its own"
    NOTHING = "its initial weights"


async def revoke_lost_blocks(client: WhitneyClient, folder: RunFolder) -> Left:
    """Make sure that what a Retry will adopt is one chain that can be gone on from; what there is to go on from.

    Raises:
        ConfigError: none can: the states have expired or were deleted. Or a finished block's result cannot be read.
        WhitneyError: the endpoint cannot be asked.
    """
    children = await completed_children(folder.flow_run_id)
    blocks, astray = unbroken(child for child in children if isinstance(child.outcome, BlockOutcome))
    lost: list[tuple[Child, Problem]] = [(child, Problem.ASTRAY) for child in reversed(astray)]
    exported = any(
        isinstance(child.outcome, ExportOutcome) and child.outcome.final
        for child in children
        if not _is_of_another(child, blocks)
    )
    while not exported and blocks and (problem := await _problem(client, folder, blocks[-1].outcome)):
        lost.append((blocks.pop(), problem))
    if not blocks and any(problem is Problem.GONE for _, problem in lost):
        newest, why = lost[0]
        raise ConfigError(
            f"there is nothing left to go on from. State {newest.outcome.state_id} of cycle {newest.outcome.cycle + 1} "
            f"{why}; none of an earlier cycle can be used either. Start a new run; `keep_states` says how many states "
            "a run keeps, and the endpoint's retention for how long (`whitney serve --keep-days`)"
        )
    await _revoke(lost, [child for child in children if _is_of_another(child, blocks)], blocks)
    if exported:
        return Left.EXPORTED
    return Left.SAVED if blocks else Left.NOTHING


def _is_of_another(child: Child, blocks: Sequence[Child]) -> bool:
    """Whether a measurement or an export is of a state that none of the blocks has saved; None is before the first."""
    own = {None, *(block.outcome.state_id for block in blocks)}
    return isinstance(child.outcome, EvaluationOutcome | ExportOutcome) and child.outcome.state_id not in own


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


async def _revoke(lost: Sequence[tuple[Child, Problem]], taken: Sequence[Child], left: Sequence[Child]) -> None:
    """Take the completion of blocks back, and of what was taken of states that are not in the lineage any more."""
    for child, why in lost:
        warn(f"state {child.outcome.state_id} of cycle {child.outcome.cycle + 1} {why}: skipped")
    if lost:
        newest = left[-1].outcome if left else None
        going_on = f"state {newest.state_id} of cycle {newest.cycle + 1}" if newest else "the initial weights"
        again = "1 finished block is" if len(lost) == 1 else f"{len(lost)} finished blocks are"
        warn(f"going on from {going_on}; {again} trained again")
    of_another = "it is of a state that is not gone on from"
    revoked: list[tuple[Child, str]] = [*lost, *((child, of_another) for child in taken)]
    async with get_client() as api:
        for child, reason in revoked:
            crashed: State[None] = Crashed(message=f"revoked by a Retry: {reason}")
            await api.set_flow_run_state(child.flow_run_id, crashed, force=True)
