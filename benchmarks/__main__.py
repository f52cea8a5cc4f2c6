"""`make bench`: every benchmark, one after another, as a table and as benchmarks/results.json.

Each measures something of ours beside a peer or a baseline in the same run; the ratios are what to quote, for the
machine may be shared. A target stands beside its figure. `--quick` measures less of each; `--only NAME` one of them.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import cycle, datums, engine, learning, plan
from benchmarks.figures import Figure, table

BENCHMARKS: dict[str, Callable[[bool], list[Figure]]] = {
    "datums": datums.run,
    "engine": engine.run,
    "cycle": cycle.run,
    "plan": plan.run,
    "learning": learning.run,
}
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure less of each")
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run one benchmark")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "python": sys.version.split()[0]}
    for name, run in BENCHMARKS.items():
        if arguments.only in {None, name}:
            began = time.monotonic()
            figures = run(arguments.quick)
            print(f"\n{name}  ({time.monotonic() - began:.0f} s)\n{table(figures)}", flush=True)
            found[name] = {figure.name: figure.record() for figure in figures}
    RESULTS.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\nwritten to {RESULTS}")


if __name__ == "__main__":
    main()
