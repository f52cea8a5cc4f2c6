"""A process that makes the entries of one reasoning-gym task, the same ones in every process.

Run as `python -m tasks.reasoning_source TASK OPTIONS` with PYTHONHASHSEED set; `tasks.reasoning` is the other end. Some
tasks go through sets, whose order Python changes from process to process, and some draw from the global generator: made
in a flow's process, a Retry would train on other questions than the run that it continues. The answer is one JSON
object: `{"entries": [[question, answer, metadata packed], …]}`, `{"unknown": [tasks there are]}` or `{"refused": why}`.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import numpy as np

from tasks.reasoning_entries import dataset, pack


def main() -> None:
    """Write the entries of the task that the arguments name to standard output."""
    task, options = sys.argv[1], json.loads(sys.argv[2])
    answers, sys.stdout = sys.stdout, sys.stderr  # what a task prints is not its entries
    json.dump(_answer(task, options), answers, default=str)


def _answer(task: str, options: dict[str, Any]) -> dict[str, Any]:
    from reasoning_gym import factory  # noqa: PLC0415 - after standard output is out of its reach

    if task not in factory.DATASETS:
        return {"unknown": sorted(factory.DATASETS)}
    try:
        random.seed(options["seed"])
        np.random.seed(options["seed"])
        entries = dataset(task, options)
        return {"entries": [[entry["question"], entry["answer"], pack(entry["metadata"])] for entry in entries]}
    except (AssertionError, TypeError, ValueError) as error:  # what its tasks raise for options they refuse
        return {"refused": str(error)}


if __name__ == "__main__":
    main()
