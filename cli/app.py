"""The `whitney` command: what is there, and how an error becomes a sentence and an exit status.

Exit status: 0 done; 1 a run or a check failed; 2 something the user can mend, nothing was left open; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError

from cli.failures import INTERRUPTED, USER_MISTAKE, CommandFailedError, is_user_mistake, of_the_disk

app = App(
    name="whitney",
    help="LLM post-training as durable Prefect pipelines over the Whitney training API.",
    version=lambda: version("whitney-pipelines"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
# Each command is imported when it is called: `whitney --help` needs neither Prefect nor torch.
app.command("cli.demo:demo", name="demo", help="Watch a small model learn to add: gateway, Prefect, GRPO, one command.")
app.command("cli.run:run", name="run", help="Train what a configuration says.")
app.command("cli.plan:plan", name="plan", help="What a configuration will cost, before anything is allocated.")
app.command("cli.init:init", name="init", help="Write a commented configuration to start from.")
app.command("cli.algorithms:algorithms", name="algorithms", help="Which algorithms there are, and what each needs.")
app.command("cli.deploy:deploy", name="deploy", help="Register deployments, schedules and alerts on a Prefect server.")
app.command("cli.up:up", name="up", help="Start Prefect server, gateway and worker on this machine, until Ctrl-C.")
app.command("cli.worker:worker", name="worker", help="Run on this machine what is deployed to a work pool.")
app.command("cli.serve:serve", name="serve", help="Serve Whitney on this machine, training on its CPU.")
app.command("cli.smoke:smoke", name="smoke", help="Prove on a live endpoint that operations mean what we think.")
app.command("cli.reap:reap", name="reap", help="Close sessions that were left open.")
app.command("cli.lineage:lineage", name="lineage", help="Which state came from which, and what was paid for twice.")
app.command("cli.export:export", name="export", help="A run's adapter, or base and adapter merged, in a folder.")
app.command("cli.model:model", name="model", help="Where a model's folder is; transformers and peft load it.")
app.command("cli.mcp_server:mcp", name="mcp", help="Serve coding agents over stdio (Model Context Protocol).")
app.command("cli.doctor:doctor", name="doctor", help="Check versions, key, gateway, Prefect, model cache and disk.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    status = run_command(sys.argv[1:] if arguments is None else arguments)
    if status == INTERRUPTED:
        _exit_now(status)
    sys.exit(status)


def _exit_now(status: int) -> NoReturn:
    """End the process without the interpreter's own ending.

    That waits for other threads, and calls exit handlers of libraries that may start new ones: after an interrupt,
    which can come anywhere, it has been seen to wait for ever. What a command has started it has stopped by now; what
    remains is Prefect's temporary server, which Prefect would stop in an exit handler.
    """
    from cli.prefect_setup import stop_temporary_server

    try:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        stop_temporary_server()
    finally:
        os._exit(status)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; its exit status. An error that is nobody's mistake but ours keeps its traceback."""
    try:
        status = int(app(arguments, exit_on_error=False, print_error=False) or 0)
        print(end="", flush=True)  # here, where it can be told that it cannot be written
    except CycloptsError as error:
        return _say(f"{_told(error)}\nSee: {_command(error)} --help", USER_MISTAKE)
    except KeyboardInterrupt as error:  # its words, if it has any, say how to go on
        return _say("\n".join(["interrupted", *map(str, error.args)]), INTERRUPTED)
    except BrokenPipeError:  # `whitney doctor | head`
        sys.stderr.close()
        _leave_stdout()
        return 1
    except CommandFailedError as error:
        return _say(str(error), 1)
    except Exception as error:
        if said := str(error) if is_user_mistake(error) else of_the_disk(error):
            _leave_stdout()
            return _say(said, USER_MISTAKE)
        raise
    return status


def _leave_stdout() -> None:
    """What could not be written is tried again when the interpreter ends, and that would have a word and a status."""
    try:
        print(end="", flush=True)
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: CycloptsError) -> str:
    """A mistake in a command line. `serve` has a pydantic model for its flags, whose own words are for programmers."""
    if isinstance(error, MissingArgumentError) and error.argument is not None and error.argument.required:
        command = _command(error)
        name = error.argument.name.removeprefix("--").upper()
        return f"{name} is missing: {command} {name}; `{command} --help` says what it is"
    if isinstance(error, UnusedCliTokensError):
        return f"{' '.join(error.unused_tokens or ())}: more than `{_command(error)}` takes"
    if error.__cause__ is None:
        return str(error)
    from pydantic import ValidationError

    from gateway.options import flag_mistakes

    return flag_mistakes(error.__cause__) if isinstance(error.__cause__, ValidationError) else str(error)


def _command(error: CycloptsError) -> str:
    """Whose help explains it: that of the command, where one was found."""
    return " ".join(("whitney", *(error.command_chain or ())))


def _say(message: str, status: int) -> int:
    with suppress(OSError):  # the terminal has been closed
        print(f"whitney: {message}", file=sys.stderr)
    return status
