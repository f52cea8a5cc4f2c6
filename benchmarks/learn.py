"""`make learn`: train every algorithm on SmolLM2-135M, and write what they learned to docs/learning.md.

Hours on two cores, so every finding is kept in benchmarks/learning.json as it is had: started again, the command goes
on with what is missing. `--fresh` measures again, `--only` a few of them, `--list` says what there is.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import addition, discovery, distillation, feedback, pipeline
from benchmarks.experiments import Experiment, Record, Records, missing
from benchmarks.learning_page import page
from benchmarks.readme_table import README, readme
from benchmarks.surroundings import prefect_server
from benchmarks.training import cpu_s
from tasks.provenance import provenance

EXPERIMENTS: tuple[Experiment, ...] = (
    *addition.EXPERIMENTS,
    *distillation.EXPERIMENTS,
    *discovery.EXPERIMENTS,
    *feedback.EXPERIMENTS,
    *pipeline.EXPERIMENTS,
)
RESULTS = Path(__file__).with_name("learning.json")
PAGE = Path(__file__).parents[1] / "docs" / "learning.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these, by the names of --list")
    parser.add_argument("--fresh", action="store_true", help="measure again what has been measured")
    parser.add_argument("--list", action="store_true", help="say what there is and what is missing")
    arguments = parser.parse_args()
    records = Records(RESULTS)
    if unknown := set(arguments.only) - {experiment.name for experiment in EXPERIMENTS}:
        parser.error(f"--only: no experiment {', '.join(sorted(unknown))}; --list names them")
    if arguments.list:
        for experiment in EXPERIMENTS:
            print(f"{'       ' if records.of(experiment) else 'missing'}  {experiment.name}")
        return
    chosen = [experiment for experiment in EXPERIMENTS if not arguments.only or experiment.name in arguments.only]
    measure_and_publish(chosen if arguments.fresh else missing(chosen, records))


def measure_and_publish(todo: Sequence[Experiment]) -> None:
    """Run them on a Prefect server of their own, keep what they find, and write the pages that show it."""
    records = Records(RESULTS)
    if todo:
        with tempfile.TemporaryDirectory() as scratch, prefect_server(Path(scratch)):
            run(todo, records)
    PAGE.write_text(page(EXPERIMENTS, records), encoding="utf-8")
    README.write_text(readme(EXPERIMENTS, records), encoding="utf-8")
    print(f"written to {PAGE} and {README.name}")


def run(experiments: Sequence[Experiment], records: Records) -> None:
    """One after the other, each in a folder that is gone afterwards, each kept at once; a Prefect server is there."""
    for number, experiment in enumerate(experiments, 1):
        print(f"{number} of {len(experiments)}: {experiment.name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            record = measured(experiment, Path(folder))
        records.keep(experiment, record)
        print(f"   {record.finding.figures}, {record.wall_s:.0f} s, {record.cpu_s:.0f} CPU s", flush=True)


def measured(experiment: Experiment, folder: Path) -> Record:
    """The experiment's finding, with what it cost and the commit it came from."""
    commit, began, cpu_before = _commit(), time.monotonic(), cpu_s()
    finding = experiment.measure(experiment, folder)
    return Record(
        fingerprint=experiment.fingerprint,
        starter=experiment.starter,
        settings=experiment.settings,
        commit=commit,
        wall_s=round(time.monotonic() - began, 1),
        cpu_s=round(cpu_s() - cpu_before, 1),
        finding=finding,
    )


def _commit() -> str:
    """The commit of the code, with a + where files differ from it."""
    git = provenance()["git"]
    return "unknown" if git is None else git["commit"][:9] + "+" * git["dirty"]


if __name__ == "__main__":
    main()
