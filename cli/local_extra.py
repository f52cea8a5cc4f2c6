"""The embedded gateway's dependencies, which the core install leaves out."""

from __future__ import annotations

from importlib.util import find_spec

from cli.failures import UsageError

MODULES = ("starlette", "uvicorn", "torch")


def require_local_extra() -> None:
    """Raises UsageError when this installation cannot train on its own machine."""
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f'the embedded gateway needs {", ".join(missing)}: pip install "whitney-pipelines[local]", '
            "or name a hosted endpoint with WHITNEY_BASE_URL and WHITNEY_API_KEY"
        )
