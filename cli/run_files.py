"""The files of a run folder, read as what they may have become: edited, emptied, cut short by a full disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from cli.failures import UsageError

T = TypeVar("T")

RUNS = Path("runs")
"""Where runs are, unless a configuration says otherwise."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What of a row of states.jsonl a resume asks for; `cycle` (0-based) is the last that the state has in it."""

    cycle: Annotated[int, Field(ge=0)]
    state_id: str


TABLE = TypeAdapter(dict[str, Any])
SAVED_STATE = TypeAdapter(SavedState)


def run_folder(run: str | Path, output_dir: Path = RUNS) -> Path | None:
    """A run folder by its path, or by its name in `output_dir`; None where there is neither."""
    return next((place for place in (Path(run), output_dir / run) if (place / "config.json").is_file()), None)


def no_run_folder(run: str | Path, output_dir: Path = RUNS) -> str:
    """The same in words, where it is None."""
    nor = "" if Path(run).is_absolute() else f", nor {output_dir / run}"
    return f"there is no run folder {run}{nor} (one with a config.json)"


def read_json(path: Path, shape: TypeAdapter[T], way_out: str) -> T | None:
    """What a JSON file holds; None where there is none.

    Raises:
        UsageError: it cannot be read, or has not this shape; with the way out.
    """
    content = _read(path, way_out)
    return None if content is None else _parsed(content, shape, str(path), way_out)


def read_lines(path: Path, shape: TypeAdapter[T], way_out: str) -> list[T]:
    """The rows of a JSONL file; none where there is no file.

    Raises:
        UsageError: as for `read_json`; names the line.
    """
    lines = (_read(path, way_out) or b"").splitlines()
    return [_parsed(line, shape, f"{path}, line {number},", way_out) for number, line in enumerate(lines, 1)]


def _read(path: Path, way_out: str) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {way_out}") from error


def _parsed(content: bytes, shape: TypeAdapter[T], where: str, way_out: str) -> T:
    try:
        return shape.validate_json(content)
    except ValidationError as error:
        issue = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, issue["loc"]))
        raise UsageError(
            f"{where} is not as a run leaves it: {field + ': ' if field else ''}{issue['msg']}; {way_out}"
        ) from error
