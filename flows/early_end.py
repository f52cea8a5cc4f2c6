"""How a flow run ends on purpose, in a state with a sentence: nothing has gone wrong that a traceback would explain."""

from __future__ import annotations

from prefect import State
from prefect.states import Cancelled, Completed, Failed

from flows.amounts import amount_told, enough_told
from flows.config.budget import KINDS

SKIPPED = "Skipped"
"""Name of the state of a run that was not needed."""


class EarlyEnd(Exception):  # noqa: N818 - no error: it is raised through whatever has been opened so far
    """Raised to end the flow run in `state`; the decorators of `flows.lifecycle` hand that to Prefect."""

    @property
    def state(self) -> State[None]:
        """How the flow run ends."""
        raise NotImplementedError


class DeclinedError(EarlyEnd):
    """A person has said no. Nobody's fault: Cancelled, as if they had pressed the button."""

    @property
    def state(self) -> State[None]:
        """Cancelled, with who has declined what."""
        return Cancelled(message=str(self))


class CancelPressedError(EarlyEnd):
    """Cancel was pressed on the flow run's page, and nobody but itself was there to see it: `flows.cancelling`."""

    @property
    def state(self) -> State[None]:
        """Cancelled, with which one it was."""
        return Cancelled(message=str(self))


class BudgetReachedError(EarlyEnd):
    """A limit of the budget does not allow what would be billed next. Ends what is at work; the run itself ends well.

    Args:
        path: the limit, by its path in the configuration: "budget.max_tokens".
        limit: its value.
        used: what is used of it.
        needed: what would be needed beyond that, with what the run needs to end.
        what: what was about to be begun or posted.
        ends: whether that is what ends the run, so that nothing more comes after it.
        currency: of a limit on money.
    """

    def __init__(
        self, path: str, *, limit: float, used: float, needed: float, what: str, ends: bool = False, currency: str = ""
    ) -> None:
        self.path, self.limit, self.used, self.needed, self.ends = path, limit, used, needed, ends
        self._currency = currency
        comes = f"{what} was to come next"
        if needed:
            more = f"{self.told(needed)} more"
            comes = f"{what} needs {more}" if ends else f"{what} may need {more}, its end included"
        super().__init__(f"{path} = {self.told(limit)}: {self.told(used)} used; {comes}")

    @property
    def account(self) -> str:
        """Whose limit it is: "budget", or the pipeline's."""
        return self.path.rpartition(".")[0]

    @property
    def field(self) -> str:
        """The limit's own name."""
        return self.path.rpartition(".")[2]

    def told(self, amount: float) -> str:
        """An amount of what is limited, in words."""
        return amount_told(KINDS[self.field], amount, self._currency)

    def told_enough(self, amount: float) -> str:
        """The same, never rounded down: what a limit may be set to."""
        return enough_told(KINDS[self.field], amount, self._currency)

    @property
    def state(self) -> State[None]:
        """Cancelled, with the limit and what is used of it."""
        return Cancelled(message=str(self))


class NoAdapterError(EarlyEnd):
    """The budget has ended the first block, or left nothing for the export: there is no adapter, which is what a run is
    for. So it is Failed: whoever waits for an adapter goes on with none, and is alerted. A Retry with a higher limit
    goes on."""

    @property
    def state(self) -> State[None]:
        """Failed, with the limit, what is used of it and how to go on."""
        return Failed(message=str(self))


class SkippedError(EarlyEnd):
    """There is nothing to do: Completed, under a name of its own, so that it is told from a run that trained."""

    @property
    def state(self) -> State[None]:
        """Completed, named "Skipped", with the reason."""
        return Completed(name=SKIPPED, message=str(self))
