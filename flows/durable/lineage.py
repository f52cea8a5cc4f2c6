"""The lineage: state after parent state, each cycle once; and how much of it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flows.config import ConfigError
from flows.durable.children import Child
from flows.durable.outcome import Block, BlockOutcome, EvaluationOutcome, ExportOutcome, Start
from flows.durable.telling import warn
from tasks.lineage import Redone, billed_by_attempt, redone
from whitney.client import WhitneyClient
from whitney.errors import NotFoundError, WhitneyError
from whitney.types import Session


def require_next(chain: Sequence[BlockOutcome], block: Block, outcome: BlockOutcome) -> None:
    """Make sure that `outcome` is of `block`, and begins where the chain of those before it ends.

    Raises:
        RuntimeError: it does not. Prefect matches children by call order; were the order ever to differ, a cycle would
            go untrained in a run that ends Completed.
    """
    found = (outcome.block, outcome.cycle, outcome.parent_state_id)
    wanted = (block.index, block.numbers[-1], chain[-1].state_id if chain else None)
    if found != wanted:
        raise RuntimeError(
            "the lineage is broken: (block, its last cycle, the state it starts from) is "
            f"{found}, must be {wanted}. Please report this; nothing has been trained on it"
        )


def unbroken(blocks: Iterable[Child]) -> tuple[list[Child], list[Child]]:
    """Finished blocks in order: those that make one chain from the first cycle, and those behind where it breaks.

    It breaks at a block that Prefect has left Cancelling although it returned: that one is trained again, to another
    state, and a run that would adopt what was trained from the former one could only fail, at every Retry.
    """
    ordered = sorted(blocks, key=lambda child: child.outcome.block)
    state_id: str | None = None
    for place, child in enumerate(ordered):
        if (child.outcome.block, child.outcome.parent_state_id) != (place, state_id):
            return ordered[:place], ordered[place:]
        state_id = child.outcome.state_id
    return ordered, []


def require_taken_at(start: Start, outcome: EvaluationOutcome | ExportOutcome) -> None:
    """Make sure that what a former attempt measured or exported is of the state that the run now stands at.

    Raises:
        ConfigError: it is not: the run has been made longer or shorter after it had come to its end.
    """
    if outcome.state_id != start.state_id:
        what = "measured" if isinstance(outcome, EvaluationOutcome) else "exported"
        raise ConfigError(
            f"this run was {what} at state {outcome.state_id}, and now stands at {start.state_id}: its configuration "
            "has changed since. Start a new run from that state instead (model.initial_state_id)"
        )


async def delete_old_states(client: WhitneyClient, chain: Sequence[BlockOutcome], keep: int | None) -> None:
    """Delete the states of the block that has just ceased to be among the last `keep`: storage is billed too.

    Two at least are kept (`keep_states` has it so): should the newest be lost, a Retry goes on from the one before.
    A state that cannot be deleted is told, and left to the endpoint's own retention.
    """
    if keep is None or len(chain) <= keep:
        return
    for state_id in chain[-1 - keep].state_ids:
        try:
            await client.delete_state(state_id)
        except WhitneyError as error:
            if not isinstance(error, NotFoundError):
                warn(f"state {state_id} could not be deleted: {error}")


def redone_in(
    sessions: Sequence[Session],
    chain: Sequence[BlockOutcome],
    *others: EvaluationOutcome | ExportOutcome,
) -> Redone:
    """What all attempts were billed beyond the blocks, evaluations and the export that the run is made of."""
    blocks = [(outcome.attempt, row) for outcome in chain for row in outcome.rows]
    return redone(billed_by_attempt(sessions), [*blocks, *((one.attempt, one.usage) for one in others)])
