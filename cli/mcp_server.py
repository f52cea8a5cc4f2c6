"""`whitney mcp`: what a coding agent needs of the command line, as tools of the Model Context Protocol over stdio.

Thin on purpose: `check` is what `whitney run` does before it allocates anything, `run` is `whitney run` in a process of
its own, and `status` reads the run folder that it writes. No tool takes a key, and none returns one.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.failures import UsageError, is_user_mistake
from tasks.python_process import command

if TYPE_CHECKING:
    from flows.load_config import AnyConfig

INSTRUCTIONS = """\
Post-training of language models over the Whitney API. Read `capabilities` before anything else, then `algorithms`;
start from the configuration file that an algorithm names; `check` it, which allocates nothing; then `run`. An algorithm
that a provider refuses is not to be replaced by another that looks like it: say what is missing."""
LAST_CYCLES = 5
LOG_LINES = 20

Answer = dict[str, Any]


def mcp() -> int:
    """Serve coding agents over stdio (Model Context Protocol), until the client hangs up.

    Tools: capabilities, algorithms, check, run, status. The endpoint is what WHITNEY_BASE_URL and WHITNEY_API_KEY name,
    as for `whitney run`; runs are written below the current folder.
    """
    if find_spec("mcp") is None:
        raise UsageError("the extra 'mcp' is not installed: pip install 'whitney-pipelines[mcp]'")
    from cli.mcp_strict import StrictServer
    from cli.prefect_setup import configure

    configure(verbose=False)
    tools = Tools()
    offered = (tools.capabilities, tools.algorithms, tools.check, tools.run, tools.status)
    StrictServer("whitney", offered, instructions=INSTRUCTIONS).run("stdio")
    return 0


class Tools:
    """The tools; it remembers the processes that it has started."""

    def __init__(self) -> None:
        self._runs: dict[Path, subprocess.Popen[bytes]] = {}

    async def capabilities(self) -> Answer:
        """What the configured endpoint serves: provider, model, operations, context, LoRA rank, loss reduction."""
        from algorithms.losses import PROVIDER_LOSS_SUPPORT
        from cli.greeting import greeting
        from whitney.settings import resolve_settings

        with told():
            rows = await greeting(resolve_settings(), lambda line: None)
        return {
            "rows": [row.model_dump(mode="json") for row in rows],
            "losses_by_provider": {name: sorted(losses) for name, losses in PROVIDER_LOSS_SUPPORT.items()},
            "note": "losses are a table kept by hand: the endpoint publishes none",
        }

    async def algorithms(self, name: str | None = None) -> Answer:
        """All algorithms: contract, operations, losses, what refuses them, options. With a name: also its page."""
        from algorithms.registry import ALGORITHMS, algorithm
        from cli.algorithms import described, page_of

        if name is None:
            return {"algorithms": described(list(ALGORITHMS.values()))}
        with told():
            row = algorithm(name)
        return {**described([row])[0], "page": page_of(row)}

    async def check(self, config: str, overrides: list[str] | None = None) -> Answer:
        """Check a configuration file with everything that needs no endpoint: fields, losses, data, template, rewards.

        Allocates nothing. `overrides` are `field.name=value`, put over the file's. Answers "ok" with what the file and
        the overrides say that is not a default; all fields and their defaults are in `algorithms`.
        """
        algorithm, checked = await _checked(config, overrides)
        return {
            "ok": True,
            "summary": _in_words(algorithm, checked),
            "algorithm": algorithm,
            "not_default": checked.model_dump(mode="json", exclude_defaults=True),
        }

    async def run(self, config: str, name: str | None = None, overrides: list[str] | None = None) -> Answer:
        """Check a configuration and start training it in a process of its own, which goes on when this server ends.

        Answers at once with the run folder, for `status`. Without an endpoint it trains on this machine.
        """
        from flows.config.sections import NAME

        if name is not None and not re.fullmatch(NAME, name):  # it names a log file here
            raise _tool_error(f"name = {name!r}: letters, digits, dots, dashes and underscores, 80 at most")
        algorithm, checked = await _checked(config, overrides)
        name = name or f"{algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = checked.output_dir / name
        if folder.exists():
            raise _tool_error(f"{folder} is there already: name another run")
        log = Path(".whitney") / "mcp" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        settings = [word for override in overrides or [] for word in ("--set", override)]
        training = command("cli", "run", config, *settings, "--name", name)
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: ASYNC220 - it is left to itself, not waited for
                training, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._runs[folder] = process
        return {
            "run_folder": str(folder),
            "log": str(log),
            "pid": process.pid,
            "to_stop": f"kill -INT {process.pid}: it closes its session",
        }

    def status(self, run_folder: str) -> Answer:
        """How a run stands: its last cycles and, once it has ended, its summary; the end of its log if it failed.

        Of a pipeline `stages_done` holds what its finished stages have come to; each has a run folder of its own, below
        the pipeline's, to ask for.
        """
        folder = Path(run_folder)
        process = self._runs.get(folder)
        if process is None and not folder.is_dir():
            raise _tool_error(f"{folder}: there is no such run folder")
        rows, stages = (
            [json.loads(line) for line in _text(folder / name).splitlines()]
            for name in ("metrics.jsonl", "stages.jsonl")
        )
        summary = json.loads(_text(folder / "summary.json") or "null")
        state = _state(process, summary)
        log = _text(Path(".whitney") / "mcp" / f"{folder.name}.log").splitlines() if state.startswith("failed") else []
        return {
            "state": state,
            "cycles": len(rows),
            "last_cycles": rows[-LAST_CYCLES:],
            **({"stages_done": stages} if stages else {}),
            "summary": summary,
            "log": log[-LOG_LINES:],
        }


async def _checked(config: str, overrides: list[str] | None) -> tuple[str, AnyConfig]:
    """A configuration that has passed everything that needs no endpoint."""
    from cli.check_config import check_config
    from flows.load_config import load_config

    with told():
        algorithm, checked = load_config(Path(config), overrides or [])
        await asyncio.to_thread(check_config, algorithm, checked)
    return algorithm, checked


def _in_words(algorithm: str, config: AnyConfig) -> str:
    from flows.config import FlowConfig

    if isinstance(config, FlowConfig):
        return f"{algorithm} on {config.model.provider}/{config.model.name}: {config.cycles} cycles"
    return f"{algorithm}: {' → '.join(f'{stage.name} ({stage.algorithm})' for stage in config.stages)}"


def _state(process: subprocess.Popen[bytes] | None, summary: Answer | None) -> str:
    code = None if process is None else process.poll()
    if code:
        return f"failed, exit status {code}"
    if summary:
        return "finished"
    return "running" if process is not None else "without a summary: another process trains it, or it ended early"


@contextmanager
def told() -> Iterator[None]:
    """A mistake of the caller's, as the sentence that the command line would print."""
    try:
        yield
    except Exception as error:
        if is_user_mistake(error) or isinstance(error, ValueError):
            raise _tool_error(str(error)) from error
        raise


def _tool_error(message: str) -> Exception:
    from mcp.server.mcpserver.exceptions import ToolError

    return ToolError(message)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
