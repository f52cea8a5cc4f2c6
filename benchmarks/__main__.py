"""`make bench`: every benchmark, one after another, as a table and as benchmarks/results.json.

Each measures something of ours beside a peer or a baseline in the same run; the ratios are what to quote, for the
machine may be shared. `--quick` measures less of each; `--only NAME` one of them.
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

from benchmarks import cycle, datums, engine

BENCHMARKS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "datums": datums.run,
    "engine": engine.run,
    "cycle": cycle.run,
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
            found[name] = run(arguments.quick)
            print(f"\n{name}  ({time.monotonic() - began:.0f} s)")
            for key, value in found[name].items():
                print(f"  {key:<36}{value:>12.2f}" if isinstance(value, float) else f"  {key:<36}{value!s:>12}")
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"\nwritten to {RESULTS}")


if __name__ == "__main__":
    main()
