"""`whitney doctor`: what is there, what is missing, what to do about it. Never prints a key."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cli.doctor_prefect import look_at_prefect
from cli.finding import Finding

if TYPE_CHECKING:
    from whitney.settings import WhitneySettings


FREE_GB = 5
"""PyTorch and the demo's model, with room for saved states."""

NO_ENDPOINT = (
    "none is named by WHITNEY_BASE_URL and WHITNEY_API_KEY, and none runs here: `whitney up` starts one that stays; "
    "without it each `whitney run` starts its own"
)

MARKS = {"ok": "[green]ok  [/]", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]"}


def doctor() -> int:
    """Check versions, key, gateway, Prefect and what is deployed, model cache and disk, and say what to do.

    Exit status 1 on a failure.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    findings = [finding for look in LOOKS for finding in look()]
    for finding in findings:
        console.print(
            f"{MARKS[finding.level]} {finding.subject}: {escape(finding.seen)}", highlight=False, soft_wrap=True
        )
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def _versions() -> list[Finding]:
    python = Finding("ok", "Python", f"{platform.python_version()} in {sys.prefix}")
    packages = []
    for name in ("whitney-pipelines", "prefect", "pydantic", "httpx", "tokenizers"):
        try:
            packages.append(Finding("ok", name, version(name)))
        except PackageNotFoundError:
            packages.append(Finding("fail", name, "not installed: pip install -e . in the project's folder"))
    return [python, *packages]


def _engine() -> list[Finding]:
    from cli.local_extra import MODULES

    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        advice = 'pip install "whitney-pipelines[local]"; not needed with a hosted endpoint'
        return [Finding("warn", "embedded gateway", f"{', '.join(missing)} not installed: {advice}")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [Finding("ok", "embedded gateway", f"torch {version('torch')}, {cores} CPU cores")]


def _whitney() -> list[Finding]:
    from whitney.errors import ConfigurationError, NoEndpointError, WhitneyError
    from whitney.settings import default_data_dir, local_gateway, resolve_settings

    try:
        settings = resolve_settings()
    except NoEndpointError:
        return [Finding("warn", "Whitney endpoint", NO_ENDPOINT)]
    except ConfigurationError as error:
        return [Finding("fail", "Whitney endpoint", str(error))]
    local = local_gateway()
    found_in = default_data_dir() if local and local.base_url == settings.base_url else "the environment or .env"
    where = Finding("ok", "Whitney endpoint", f"{settings.base_url}, its address and key from {found_in}")
    try:
        served = asyncio.run(_capabilities(settings))
    except WhitneyError as error:
        return [where, Finding("fail", "Whitney answers", str(error))]
    return [where, Finding("ok", "Whitney answers", f"it takes the key and serves {served}")]


async def _capabilities(settings: WhitneySettings) -> str:
    from cli.greeting import greeting

    rows = await greeting(settings, lambda line: print(line, file=sys.stderr))
    return ", ".join(f"{row.provider}/{row.model}" for row in rows) or "nothing"


def _models() -> list[Finding]:
    from models.resolve import BUILT_IN, cache_folder

    folder = cache_folder()
    there = [name for name, (stored, _) in BUILT_IN.items() if (folder / stored).is_dir()]
    missing = [name for name in BUILT_IN if name not in there]
    seen = f"{folder} holds {', '.join(there) or 'none of the built-in models'}"
    return [Finding("ok", "models", f"{seen}; made at first use: {', '.join(missing)}" if missing else seen)]


def _disk() -> list[Finding]:
    from models.resolve import cache_folder

    findings = []
    for what, folder in {"this folder": Path.cwd(), "the model cache": cache_folder()}.items():
        place = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(place).free / 1e9
        level: Literal["ok", "warn"] = "ok" if free >= FREE_GB else "warn"
        advice = "" if level == "ok" else f": {FREE_GB} GB are advisable"
        findings.append(Finding(level, f"disk of {what}", f"{free:.1f} GB free{advice}"))
        if not os.access(place, os.W_OK):
            findings.append(Finding("fail", f"disk of {what}", f"{place} cannot be written to"))
    return findings


def _leftovers() -> list[Finding]:
    """What runs that did not end well keep on disk: `whitney run --resume` needs it, and nothing else does."""
    from cli.run_data import leftovers

    findings = []
    for left in leftovers():
        delete = f"rm -r {shlex.quote(str(left.path))}"
        if left.run_folder is None:
            advice = f"of no run folder that is there; {delete}"
        else:
            advice = (
                f"of {left.run_folder}: `whitney run --resume {shlex.quote(str(left.run_folder))}` goes on with it, "
            )
            advice += f"{delete} gives it up"
        findings.append(Finding("warn", "left by a run", f"{left.path}, {left.size_bytes / 1e6:.1f} MB, {advice}"))
    return findings


LOOKS: tuple[Callable[[], list[Finding]], ...] = (
    _versions,
    _engine,
    _whitney,
    look_at_prefect,
    _models,
    _disk,
    _leftovers,
)
