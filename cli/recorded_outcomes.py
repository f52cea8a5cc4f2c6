"""`whitney run PIPELINE --from STAGE`: the stages before it are taken from an earlier run of the pipeline."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from algorithms.names import did_you_mean
from cli.earlier_pipeline import EarlierPipeline, stage_changes
from cli.failures import UsageError
from cli.find_run import find_run, is_pipeline
from flows.checks.drift import Change, in_lines
from flows.config.pipeline import PipelineConfig
from flows.load_config import AnyConfig
from flows.stages.outcome import StageOutcome

AVOID = (
    "states outlive a run at an endpoint that stays: start `whitney up` (or `whitney serve --model NAME`) in another "
    "terminal, in this folder, before the pipeline, and run it again"
)

SHOWN = 5
"""Runs that a message names."""


def recorded_config(of: Path | None, overrides: Iterable[str]) -> tuple[str, AnyConfig]:
    """The algorithm and configuration that an earlier run has on record, with overrides.

    Raises:
        ConfigError: it cannot be used.
        UsageError: none is named, or there is no such run.
    """
    if of is None:
        raise UsageError("--from: of which pipeline? CONFIG, its file; or --of RUN, to go by that run's configuration")
    earlier = find_run(of, None, option="--of").asking(None, overrides)
    return earlier.algorithm, earlier.asked


def recorded_outcomes(
    config: AnyConfig, stage: str, of: Path | None, *, embedded: bool | None
) -> tuple[EarlierPipeline, list[StageOutcome]]:
    """The run that is started after, and its outcomes of the stages before `stage`, in their order.

    `of` is the run that is meant; default: the newest of the pipeline's name that has come as far.

    Raises:
        UsageError: there is no such run, or what it has left cannot be used: says why.
    """
    if not isinstance(config, PipelineConfig):
        raise UsageError(f"--from {stage}: only for a pipeline; this configuration is of one algorithm")
    if embedded:
        raise UsageError(
            f"--from {stage}: --embedded starts a new gateway, and the states are in another; leave it out"
        )
    names = [one.name for one in config.stages]
    if stage not in names:
        raise UsageError(
            f"--from {stage}: no stage of that name; {did_you_mean(stage, names)}known: {', '.join(names)}"
        )
    before = names[: names.index(stage)]
    if not before:
        raise UsageError(f"--from {stage}: it is the first stage, with nothing before it; leave --from out")
    earlier = _run_of(config, before, stage, of)
    _require_unchanged(earlier, config, before, stage)
    _require_kept(earlier, stage)
    return earlier, [outcome for outcome in earlier.outcomes if outcome.stage in before]


def _run_of(config: PipelineConfig, before: list[str], stage: str, of: Path | None) -> EarlierPipeline:
    if of is not None:
        named = find_run(of, config.output_dir, option="--of")
        if not isinstance(named, EarlierPipeline):
            raise UsageError(f"--of {of}: a run of {named.algorithm}, not of a pipeline")
        if lacking := [name for name in before if name not in named.finished]:
            raise UsageError(
                f"--from {stage}: {named.folder} has no outcome of stage {', '.join(lacking)}: it ended before"
            )
        return named
    if config.name is None:
        raise UsageError(f"--from {stage}: the pipeline has no name to find its runs by; say which: --of RUN")
    runs = list(_runs_named(config.name, config.output_dir))
    for run in runs:
        if all(name in run.finished for name in before):
            return run
    seen = ", ".join(f"{run.folder} ({' and '.join(run.finished) or 'none'})" for run in runs)
    raise UsageError(
        f"--from {stage}: no run of pipeline {config.name!r} in {config.output_dir} has outcomes of "
        f"{' and '.join(before)}{f'; there are: {seen}' if seen else ''}. {_ways_out(config, stage)}"
    )


def _ways_out(config: PipelineConfig, stage: str) -> str:
    """A run under another name is found where it is named; then its own configuration can be taken, too."""
    others = [folder.name for folder in _pipelines(config.output_dir, "*")]
    if not others:
        return "Run the pipeline without --from first"
    shown = ", ".join(others[:SHOWN]) + (", …" if len(others) > SHOWN else "")
    return (
        f"If it ran under another name, say which ({shown}): `whitney run --from {stage} --of RUN` goes by that "
        "run's configuration. Else run the pipeline without --from"
    )


def _runs_named(name: str, output_dir: Path) -> Iterator[EarlierPipeline]:
    """The runs of a pipeline, the newest first; a second one's folder has an ending to its name."""
    for folder in _pipelines(output_dir, f"{name}*"):
        run = find_run(folder, None)
        if isinstance(run, EarlierPipeline) and run.config.name == name:
            yield run


def _pipelines(output_dir: Path, pattern: str) -> list[Path]:
    """Folders of pipelines, the newest first."""
    folders = [folder for folder in output_dir.glob(pattern) if is_pipeline(folder)]
    return sorted(folders, key=lambda folder: (folder / "config.json").stat().st_mtime, reverse=True)


def _require_unchanged(earlier: EarlierPipeline, config: PipelineConfig, before: list[str], stage: str) -> None:
    found: dict[str, Change] = {}
    for name in before:
        found |= {f"stages.{name}{path}": change for path, change in stage_changes(earlier.config, config, name)}
    if found:
        raise UsageError(
            f"--from {stage}: {earlier.folder} has trained the stages before with something else:\n{in_lines(found)}\n"
            f"To go by the configuration that it had: `whitney run --from {stage} --of "
            f"{shlex.quote(str(earlier.folder))}`. With this one, start at the first stage that the change is of, or "
            "without --from"
        )


def _require_kept(earlier: EarlierPipeline, stage: str) -> None:
    """Raises UsageError where the states were in a gateway of the run's own: they go with it."""
    own = earlier.endpoints.gateway_data_dir if earlier.endpoints else None
    if own is None:
        return
    if earlier.summary is None and Path(own).is_dir():
        raise UsageError(
            f"--from {stage}: the states of {earlier.folder} are in the gateway of its own ({own}), and go when it is "
            f"finished: `whitney run --resume {shlex.quote(str(earlier.folder))}` goes on with it. For --from, {AVOID}"
        )
    raise UsageError(
        f"--from {stage}: the states of {earlier.folder} were in a gateway of its own, which went with the run; {AVOID}"
    )
