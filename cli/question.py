"""A run that waits for a person: its question in the terminal, and the answer from there or from the Prefect UI.

Both go the same way, Prefect's own resume: whichever comes first counts, and the run does not know which it was.
"""

from __future__ import annotations

import contextvars
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from io import StringIO
from typing import Any, TextIO
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType

from cli.prefect_setup import flow_run_page
from cli.terminal import Say
from tasks.userinfo import without_userinfo

LOOK_EVERY_S = 0.2
PAUSING_S = 15.0
"""The question is told a moment before the flow run is paused: an answer that was faster is given again."""

ANSWERS = {"y": True, "yes": True, "n": False, "no": False}
PROMPT = "Go on? [y/N] "

ANY_LINE = 10_000
"""Characters; longer than any line of a question."""


class Question:
    """What a run asks. Where there is a terminal the answer is read from it, in a thread: the run must not be held up.

    `close` when the run goes on, or has ended.
    """

    def __init__(self, facts: Mapping[str, Any], say: Say, source: TextIO | None = None) -> None:
        self._flow_run_id = UUID(str(facts["flow_run_id"]))
        self._say = say
        self._source = source or sys.stdin
        self._over = threading.Event()
        say(f"\n{_as_text(str(facts['question']))}\n")
        if self._can_be_asked():
            say(f"Answer here, or in the Prefect UI: {_page(self._flow_run_id)}")
            # In this context: Prefect's settings, which server it is for one, are in it.
            ask = partial(contextvars.copy_context().run, self._ask)
            threading.Thread(target=ask, name="question", daemon=True).start()
        else:
            hours = float(facts["timeout_s"]) / 3600
            say(f"Waiting up to {hours:.3g} h for an answer in the Prefect UI: {_page(self._flow_run_id)}")

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _can_be_asked(self) -> bool:
        """Whether a person sits there: not where input comes from a file, nor where this runs in the background."""
        try:
            return self._source.isatty() and os.tcgetpgrp(self._source.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            return False

    def _ask(self) -> None:
        self._say(PROMPT)
        while (line := self._line()) is not None:
            if (go_on := ANSWERS.get(line.strip().lower() or "n")) is None:
                self._say(f"{line.strip()!r} is neither y nor n. {PROMPT}")
                continue
            try:
                told = self._answer(go_on)
            except Exception as error:  # of whatever kind: the run goes on waiting, and the UI is still there
                told = f"the answer could not be given: {error}; answer in the Prefect UI"
            if told:
                self._say(told)
            return

    def _line(self) -> str | None:
        """A line that was typed; None once nobody waits for one any more, or at the end of input."""
        while not self._over.is_set():
            ready, _, _ = select.select([self._source], [], [], LOOK_EVERY_S)
            if ready:
                return self._source.readline() or None
        return None

    def _answer(self, go_on: bool) -> str | None:
        """Resume the flow run, as the UI's form does; what to say where that cannot be."""
        deadline = time.monotonic() + PAUSING_S
        with get_client(sync_client=True) as api:
            while not self._over.is_set():
                state = api.read_flow_run(self._flow_run_id).state
                if state is not None and state.type == StateType.PAUSED:
                    answer = api.resume_flow_run(self._flow_run_id, {"go_on": go_on})
                    reason = getattr(answer.details, "reason", None)
                    return None if answer.status.value == "ACCEPT" else f"Prefect has not taken the answer: {reason}"
                if time.monotonic() > deadline:
                    return "the run does not wait for an answer any more"
                time.sleep(LOOK_EVERY_S)
        return None


def _as_text(markdown: str) -> str:
    """The question without its marks, which are for the form in the UI. No line is broken: the terminal does that."""
    from rich.console import Console
    from rich.markdown import Markdown

    stream = StringIO()
    Console(file=stream, width=ANY_LINE, color_system=None).print(Markdown(markdown))
    return "\n".join(line.rstrip() for line in stream.getvalue().strip("\n").splitlines())


def _page(flow_run_id: UUID) -> str:
    """Where the question is answered in the UI. A server of the run's own has one, too, as long as the run waits."""
    from prefect.settings import PREFECT_API_URL

    with suppress(Exception):  # a setting of the user's that makes no address
        if page := flow_run_page(str(flow_run_id)):
            return page
    return f"{without_userinfo(PREFECT_API_URL.value() or '').removesuffix('/api')}/runs/flow-run/{flow_run_id}"
