"""The run that is named on the command line, as its folder has it on record."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from uuid import UUID

from cli.earlier_pipeline import EarlierPipeline
from cli.earlier_run import WRITTEN_AGAIN, EarlierRun
from cli.earlier_training import EarlierTraining
from cli.failures import UsageError
from cli.run_data import Endpoints
from cli.run_files import RUNS, TABLE, no_run_folder, read_json, run_folder
from flows.config.pipeline import PIPELINE, PipelineConfig
from flows.load_config import AnyConfig, parse_config


def find_run(run: Path, output_dir: Path | None, *, option: str = "--resume") -> EarlierRun[Any]:
    """The run that is named: by its folder, or by the folder's name in `output_dir` (default: runs).

    Raises:
        UsageError: there is none, or what is there is not the folder of a run that has begun.
    """
    folder = run_folder(run, output_dir or RUNS)
    if folder is None:
        raise UsageError(f"{option} {run}: {no_run_folder(run, output_dir or RUNS)}")
    record = read_json(folder / "config.json", TABLE, "restore it from a copy, or start a new run") or {}
    if "config" not in record:
        raise UsageError(f"{folder}: config.json holds no configuration: this run never began; start it again")
    try:
        flow_run_id = UUID(record["flow_run_id"])
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{folder}/config.json: flow_run_id is missing, or no id of a flow run") from None
    algorithm, config = _configuration(record, where=f"{folder}/config.json")
    _require_no_stage(folder, option)
    known = {
        "algorithm": algorithm,
        "flow_run_id": flow_run_id,
        "endpoints": Endpoints.read(folder),
        "summary": read_json(folder / "summary.json", TABLE, WRITTEN_AGAIN),
    }
    if isinstance(config, PipelineConfig):
        return EarlierPipeline.read(folder, config, **known)
    return EarlierTraining.read(folder, config, **known)


def _require_no_stage(folder: Path, option: str) -> None:
    """Raises UsageError where the folder is a stage's, which goes on only as part of its pipeline."""
    above = folder.resolve().parent
    if is_pipeline(above):
        shown = folder.parent if folder.parent != Path() else above
        raise UsageError(
            f"{folder} is a stage of the pipeline in {shown}, which goes on as a whole: "
            f"{option} {shlex.quote(str(shown))}"
        )


def is_pipeline(folder: Path) -> bool:
    """Whether a pipeline has its run folder there."""
    try:
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("algorithm") == PIPELINE


def _configuration(record: dict[str, Any], where: str) -> tuple[str, AnyConfig]:
    """The algorithm and its configuration. Raises UsageError or ConfigError where they cannot be used."""
    recorded = record["config"]
    if not isinstance(recorded, dict):
        raise UsageError(f"{where}: config is no table; restore it from a copy, or start a new run")
    algorithm = {"algorithm": record["algorithm"]} if "algorithm" in record else {}
    return parse_config({**recorded, **algorithm}, where=where)
