"""Run a flow in this process, watched from the terminal."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect.exceptions import Abort, CancelledRun
from rich.console import Console

from cli.failures import RunFailedError, UsageError, in_words, is_user_mistake
from cli.interrupts import run_until_interrupted
from cli.measured import gain_told, measured
from cli.pipeline_lines import gate_lines, outcome_lines
from cli.prefect_server import is_up
from cli.prefect_setup import flow_run_page
from cli.progress import RunProgress
from cli.run_data import Endpoints, is_at_work
from cli.terminal import sayer
from flows import FLOWS
from flows.config.pipeline import PIPELINE, PipelineConfig
from flows.load_config import AnyConfig
from flows.pipeline import pipeline
from flows.stages.outcome import StageOutcome
from tasks.events import Event, Listener, listening
from whitney.errors import WhitneyError
from whitney.kept import kept

FlowCall = Coroutine[Any, Any, dict[str, Any]]

BEST_WIDTH = 100
"""Characters of the best solution that are shown; all of it is in best.json."""


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


def show_summary(summary: dict[str, Any], console: Console) -> None:
    """What a reader wants first: did it learn, and where is what."""
    for line in summary_lines(summary):
        sayer(console)(line)


def summary_lines(summary: dict[str, Any]) -> Iterator[str]:
    """The same, line by line.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not as a run leaves it.
    """
    if summary.get("algorithm") == PIPELINE:
        yield from ("", *outcome_lines(summary["stages"]), *gate_lines(summary["stages"]))
    else:
        yield from _learned(summary)
    yield from _bill(summary)
    yield f"Run:       {summary['run_folder']}"
    yield f"Adapter:   {summary['adapter']}"
    yield f"Artifact:  {summary['artifact_id']} (to start or to teach another run with)"
    if page := flow_run_page(summary.get("flow_run_id")):
        yield f"Prefect:   {page}"


def _learned(summary: dict[str, Any]) -> Iterator[str]:
    """Of one algorithm's run: whether it trained, why it stopped, what it found, what it is worth."""
    if not summary.get("operations", {}).get("optim_step"):
        yield (
            "Warning: no optimizer step was taken; the adapter is the initial one. Why: zero_signal_fraction, "
            "dropped/… and skipped/… in metrics.jsonl"
        )
    if summary.get("stopped"):
        yield f"Stopped early: {summary['stopped']}"
    if best := best_solution(Path(summary["run_folder"])):
        yield best
    for when in ("before", "after"):
        if evaluation := summary.get(f"evaluation_{when}"):
            yield f"Held out {when + ':':<8} {measured(evaluation)}"
    if gain := summary.get("accuracy_gain"):
        yield f"Gain:      {gain_told(gain)}"


def _bill(summary: dict[str, Any]) -> Iterator[str]:
    """What the lineage cost and, where attempts have done something again, what was billed beyond it."""
    operations = sum(summary.get("operations", {}).values())
    tokens = ", ".join(f"{count:,} {kind}" for kind, count in summary.get("tokens", {}).items())
    sessions = "not known" if summary["open_sessions"] is None else summary["open_sessions"]
    yield f"Billed:    {operations} operations; tokens: {tokens}; open sessions: {sessions}"
    redone = summary.get("redone", {"operations": 0, "tokens": 0})
    if redone is None:
        yield "           + what was redone, if anything was: the endpoint could not be asked (docs/reliability.md)"
    elif redone["operations"] or redone["tokens"]:
        yield (
            f"           + {redone['operations']:,} operations, {redone['tokens']:,} tokens redone by a later attempt "
            "(docs/reliability.md)"
        )


def best_solution(folder: Path) -> str | None:
    """The best solution that test-time training has found, in a line; None where the run searched for none."""
    path = folder / "best.json"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return f"Best:      not known: {path} cannot be read"
    try:
        text = textwrap.shorten(best["solution"], BEST_WIDTH, placeholder=" …")
        return f"Best:      {best['reward']:.3f} in cycle {best['cycle'] + 1} → {path}: {text}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return f"Best:      not known: {path} is not as a run leaves it"


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
