"""The run folder: what a run leaves on the caller's disk. Plain files, each complete at every moment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from filelock import FileLock

LONGEST_NUMBER_LIST = 64
"""Token ids, log-probs and weights stay out of the run folder: it is for people, and may be shared."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`runs/<name>/`, which belongs to one flow run.

    A Retry is the same flow run in a new process: it must find its own folder again, and never another run's. So the
    owner's id is the first thing written, and a name that is taken gets the owner's id as a suffix.
    """

    path: Path
    flow_run_id: str

    @classmethod
    def open(cls, root: Path, name: str, flow_run_id: str) -> Self:
        """Find the folder of `flow_run_id`, or make it: `<name>`, or `<name>-<first 8 of the id>` when that is taken.

        Raises:
            OSError: the folder cannot be made.
        """
        identity = str(flow_run_id)
        path = cls.find(root, name, identity)
        path = path or next(path for path in cls.places(root, name, identity) if _claim(path, identity))
        return cls(path, identity)

    @classmethod
    def find(cls, root: Path, name: str, flow_run_id: str) -> Path | None:
        """The folder of `flow_run_id`; None where `open` would make one."""
        return next((path for path in cls.places(root, name, flow_run_id) if _owner(path) == flow_run_id), None)

    @classmethod
    def all_of(cls, root: Path, name: str) -> list[Self]:
        """The folders of every run of that name, whichever flow runs' they are."""
        owned = ((path, _owner(path)) for path in sorted(root.glob(f"{_stem(name)}*")))
        return [cls(path, owner) for path, owner in owned if owner and path in cls.places(root, name, owner)]

    @staticmethod
    def places(root: Path, name: str, flow_run_id: str) -> list[Path]:
        """Where the folder of `flow_run_id` may be, in the order in which it is looked for."""
        stem = _stem(name)
        return [root / stem, root / f"{stem}-{flow_run_id[:8]}", root / f"{stem}-{flow_run_id}"]

    @property
    def adapter_dir(self) -> Path:
        """Where the exported adapter is unpacked (a PEFT folder)."""
        return self.path / "adapter"

    def lock(self) -> FileLock:
        """What an attempt holds while it is at work on this run: two at once would train every cycle twice."""
        return FileLock(self.path / ".lock", thread_local=False)

    def read_config(self) -> dict[str, Any]:
        """config.json, as an earlier attempt wrote it; of a new folder only the owner."""
        return _read_json(self.path / "config.json") or {}

    def write_config(self, config: Mapping[str, Any]) -> None:
        """config.json: the configuration as it ran, provenance, and the owner."""
        _write_json(self.path / "config.json", {**config, "flow_run_id": self.flow_run_id})

    def write_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """metrics.jsonl: one row a cycle, in order; of a cycle that was trained twice the last row counts."""
        _write_lines(self.path / "metrics.jsonl", _latest(rows, "cycle"))

    def write_states(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """states.jsonl: the chain of saved states, one row a block (state_id, parent_state_id, run_id, attempt)."""
        _write_lines(self.path / "states.jsonl", _latest(rows, "block"))

    def write_evaluations(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """evaluations.jsonl: what was measured on the held-out examples, one row a measurement, in order."""
        _write_lines(self.path / "evaluations.jsonl", rows)

    def write_samples(self, cycle: int | str, rows: Iterable[Mapping[str, Any]]) -> None:
        """samples/cycle-0003.jsonl, or samples/<word>.jsonl for an evaluation: texts, rewards, how they ended."""
        stem = cycle if isinstance(cycle, str) else f"cycle-{cycle:04d}"
        _write_lines(self.path / "samples" / f"{stem}.jsonl", rows)

    def write_stages(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """stages.jsonl of a pipeline: the outcomes of its finished stages, in their order."""
        _write_lines(self.path / "stages.jsonl", rows)

    def read_stages(self) -> list[dict[str, Any]]:
        """stages.jsonl as it was written; empty where there is none, or it is damaged."""
        try:
            rows = [orjson.loads(line) for line in (self.path / "stages.jsonl").read_bytes().splitlines()]
        except (FileNotFoundError, orjson.JSONDecodeError):
            return []
        return rows if all(isinstance(row, dict) and "stage" in row for row in rows) else []

    def write_heldout(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """heldout.jsonl: the examples that are never trained on."""
        _write_lines(self.path / "heldout.jsonl", rows)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """summary.json: how the run ended."""
        _write_json(self.path / "summary.json", summary)

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """plan.json: what the run was to cost, as it was known at its beginning."""
        _write_json(self.path / "plan.json", plan)

    def read_plan(self) -> dict[str, Any] | None:
        """plan.json as it was written; None where there is none, or it is damaged."""
        return _read_json(self.path / "plan.json")

    def write_seconds(self, by_process: Mapping[str, float]) -> None:
        """seconds.json: how long each process has been at work on the run, as of its last record."""
        _write_json(self.path / "seconds.json", by_process)

    def read_seconds(self) -> dict[str, float]:
        """seconds.json as it was written; empty where there is none."""
        found = _read_json(self.path / "seconds.json") or {}
        return {process: float(seconds) for process, seconds in found.items() if isinstance(seconds, int | float)}

    def write_beside_adapter(self, name: str, text: str) -> None:
        """adapter/README.md, the model card; adapter/chat_template.jinja, where it was trained on another one."""
        _replace(self.adapter_dir / name, text.encode())

    def write_best(self, solution: Mapping[str, Any]) -> None:
        """best.json: the best solution so far of the one problem that test-time training works on."""
        _write_json(self.path / "best.json", solution)

    def write_buffer(self, block: int, buffer: Mapping[str, Any]) -> str:
        """buffers/block-0003.json: test-time training's solutions at a block's end; the name to read it by."""
        name = f"buffers/block-{block:04d}.json"
        _write_json(self.path / name, buffer)
        return name

    def read_buffer(self, name: str) -> dict[str, Any] | None:
        """A buffer as it was written; None when the file is gone."""
        return _read_json(self.path / name)


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


def _owner(path: Path) -> str | None:
    config = _read_json(path / "config.json")
    return str(config["flow_run_id"]) if config and "flow_run_id" in config else None


def _claim(path: Path, flow_run_id: str) -> bool:
    """Make the folder and sign it; False when somebody has it. `mkdir` decides between two that come at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        return False
    _write_json(path / "config.json", {"flow_run_id": flow_run_id})
    return True


def _latest(rows: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    by_key = {row[key]: row for row in rows}
    return [by_key[value] for value in sorted(by_key)]


def _read_json(path: Path) -> dict[str, Any] | None:
    """What a file holds; None where it is not there, or damaged."""
    try:
        table = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return None
    return table if isinstance(table, dict) else None


def _write_json(path: Path, table: Mapping[str, Any]) -> None:
    _refuse_long_number_lists(table, path.name)
    _replace(path, orjson.dumps(table, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    _refuse_long_number_lists(rows, path.name)
    _replace(path, b"".join(orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE) for row in rows))


def _replace(path: Path, content: bytes) -> None:
    """Write beside, then rename over: a reader, or a crash, sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:  # of a full disk the error itself names no file, and else the one beside
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def _refuse_long_number_lists(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_long_number_lists(item, f"{where}: {key}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if len(value) > LONGEST_NUMBER_LIST and all(isinstance(item, int | float) for item in value):
            raise ValueError(
                f"{where}: a list of {len(value)} numbers does not belong in a run folder "
                f"(at most {LONGEST_NUMBER_LIST}); write what it shows instead"
            )
        for item in value:
            _refuse_long_number_lists(item, where)
