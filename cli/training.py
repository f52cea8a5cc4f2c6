"""Run a flow in this process, watched from the terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect.exceptions import Abort, CancelledRun
from rich.console import Console

from cli.failures import RunFailedError, UsageError, in_words, is_user_mistake
from cli.interrupts import run_until_interrupted
from cli.prefect_answers import is_up
from cli.prefect_setup import flow_run_page
from cli.progress import RunProgress
from cli.run_data import Endpoints, is_at_work
from cli.terminal import sayer
from flows import FLOWS
from flows.config.pipeline import PipelineConfig
from flows.load_config import AnyConfig
from flows.pipeline import pipeline
from flows.stages.outcome import StageOutcome
from tasks.events import Event, Listener, listening
from whitney.errors import WhitneyError
from whitney.kept import kept

FlowCall = Coroutine[Any, Any, dict[str, Any]]


def train(
    algorithm: str, config: AnyConfig, console: Console, endpoints: Endpoints, outcomes: Sequence[StageOutcome] = ()
) -> dict[str, Any]:
    """Run the algorithm's flow to its end, or a pipeline's, after stages that have `outcomes`; its summary.

    Raises:
        UsageError, RunFailedError, KeyboardInterrupt: as `watch`.
    """
    if config.name and (taken := config.output_dir / config.name).exists():
        sayer(console)(name_is_taken(taken))
    if isinstance(config, PipelineConfig):
        return watch(lambda: pipeline(config, list(outcomes)), console, endpoints)
    return watch(lambda: FLOWS[algorithm](config), console, endpoints)


def name_is_taken(folder: Path) -> str:
    """What to say of a folder that is there already; of a run that could be gone on with, how."""
    told = f"{folder} is there already: this run's folder has an ending to its name"
    if _owner(folder) is None or (folder / "summary.json").exists() or is_at_work(folder):
        return told
    return f"{told}; the run in it is not finished: {_resume_command(str(folder))} goes on with it"


def watch(
    begin: Callable[[], FlowCall], console: Console, endpoints: Endpoints, folder: Path | None = None
) -> dict[str, Any]:
    """Run a flow to its end, its progress in the terminal; its summary.

    As soon as there is a run folder, `endpoints` are written into it, for `whitney run --resume` to find. `folder` is
    that of a run that is gone on with.

    Raises:
        UsageError: the input was wrong; nothing had been allocated.
        RunFailedError: it failed on the way, a person said no, or another process goes on with the same run.
        KeyboardInterrupt: it was interrupted; the session has been closed. Its words say how to go on.
    """
    with RunProgress(console, folder) as progress, listening(progress), listening(_recorder(endpoints)):
        try:
            return run_until_interrupted(begin(), say=progress.say, left=lambda: _left(progress, endpoints))
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(*_how_to_go_on(progress)) from interrupt
        except CancelledRun as cancelled:  # by a person's word, asked here or in the Prefect UI
            lines = [f"{cancelled}: the run ends here", *_how_to_go_on(progress, "a resume asks again")]
            raise RunFailedError("\n".join(lines)) from cancelled
        except Abort as abort:  # Prefect's own signal, no Exception: the flow run is another process's now
            raise RunFailedError(
                f"{progress.folder or 'the run'} is left to another process, which goes on with it ({abort}); what is "
                "finished stays"
            ) from abort
        except Exception as error:
            # Before a session is open, ValueError is how a flow says that its input cannot work. After, nothing is the
            # user's mistake any more: something was allocated, and may have been billed.
            if not progress.allocated and (is_user_mistake(error) or isinstance(error, ValueError)):
                raise UsageError(str(error)) from error
            raise RunFailedError(_obituary(error, progress, endpoints)) from error


def _recorder(endpoints: Endpoints) -> Listener:
    in_pipeline = False

    def record(event: Event) -> None:
        nonlocal in_pipeline
        in_pipeline = in_pipeline or event.kind == "pipeline"
        # A folder that cannot be written to stops the run by itself, with words of its own.
        with suppress(OSError):
            if event.kind in ("prepared", "pipeline"):
                endpoints.record(Path(event.facts["folder"]), stage=in_pipeline and event.kind == "prepared")

    return record


def _left(progress: RunProgress, endpoints: Endpoints) -> Iterator[str]:
    """What an end here and now leaves, and what to do about each."""
    owner = _owner(Path(progress.folder)) if progress.folder else None
    if endpoints.gateway_data_dir is not None:
        if progress.sessions:
            yield f"session {', '.join(progress.sessions)}: its gateway ends with this; going on closes it first"
    elif progress.sessions:
        for session in progress.sessions:
            yield f"session {session} may be open, and billing: `whitney reap --session {session}` closes it"
    elif progress.asking and owner:
        yield f"a session was just being opened: `whitney reap --flow-run {owner}` closes it"
    else:
        yield "no session is open"
    yield from _how_to_go_on(progress)


def _how_to_go_on(progress: RunProgress, then: str = "") -> Iterator[str]:
    if progress.folder:
        yield f"to go on: {_resume_command(progress.folder)}{then and f'; {then}'}"


def _obituary(error: Exception, progress: RunProgress, endpoints: Endpoints) -> str:
    """Why it ended, what is left, where to look and how to go on."""
    lines = [f"the run failed: {_prefect_is_gone(error, endpoints) or in_words(error)}"]
    if (gateway := kept(endpoints.whitney_base_url)) and gateway.ends and not gateway.lost:
        lines.append(f"why: {gateway.ends[-1]}; what it had not saved is lost")
    if progress.folder is None:
        lines.append("to go on: mend what the message names and start it again; it begins at the first cycle")
        return "\n".join(lines)
    lines.append(f"what it left: {progress.folder}")
    if page := flow_run_page(_owner(Path(progress.folder))):
        lines.append(f"its log: {page}")
    elif home := endpoints.prefect_home:
        lines.append(
            f"its log: `PREFECT_HOME={shlex.quote(home)} prefect server start` shows it; in the terminal, --verbose"
        )
    lines.append(
        f"to go on: mend what the message names, then {_resume_command(progress.folder)}; what is finished stays"
    )
    return "\n".join(lines)


def _prefect_is_gone(error: Exception, endpoints: Endpoints) -> str | None:
    """What to say where Prefect does not answer, whose own words name no address; None where it does, or is not why."""
    url = endpoints.prefect_api_url
    if isinstance(error, WhitneyError) or not url or is_up(url):
        return None
    return f"Prefect at {url} does not answer ({in_words(error)})"


def _resume_command(folder: str) -> str:
    return f"`whitney run --resume {shlex.quote(folder)}`"


def _owner(folder: Path) -> str | None:
    try:
        owner = json.loads((folder / "config.json").read_text(encoding="utf-8"))["flow_run_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(owner)
