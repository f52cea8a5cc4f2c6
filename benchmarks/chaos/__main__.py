"""`make chaos`: a seeded campaign of faults; exit status 1 if one of them has cost more than a repeated block."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.chaos.configs import ALGORITHMS
from benchmarks.chaos.scenario import Scenario
from benchmarks.surroundings import prefect_server

CLIENTS = ("broken-fresh-seq", "broken-no-repost")

# Every writer beside the flows makes SQLite refuse a subflow now and then, which the client then asks for again 2 s
# later (tasks/prefect_server.py). Nothing here looks at events, task runs or schedules.
QUIET = {
    f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false"
    for name in (
        "EVENT_PERSISTER",
        "TASK_RUN_RECORDER",
        "TRIGGERS",
        "SCHEDULER",
        "FOREMAN",
        "LATE_RUNS",
        "REPOSSESSOR",
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, play, print."""
    wanted = _parse(arguments)
    folder = Path(wanted.folder or mkdtemp(prefix="whitney-chaos-"))
    (folder / "prefect").mkdir(parents=True, exist_ok=True)
    os.environ.update(QUIET)
    from benchmarks.chaos.campaign import Campaign
    from benchmarks.chaos.verdict import Verdict

    def tell(verdict: Verdict) -> None:
        print(verdict.line(), file=sys.stderr if wanted.json else sys.stdout, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the context managers: they end servers
    began = time.monotonic()
    with prefect_server(folder / "prefect"), Campaign(folder, stands=wanted.stands) as campaign:
        scenarios = wanted.only or campaign.scenarios(wanted.scenarios, wanted.seed, wanted.algorithms)
        report = campaign.run(scenarios, client=wanted.client, tell=tell)
    sums = report.sums() | {"seconds": round(time.monotonic() - began, 1)}
    if wanted.json:
        lines = [
            {"scenario": str(one.scenario), "holds": one.holds, "breaches": one.breaches} for one in report.verdicts
        ]
        print(json.dumps(sums | {"seed": wanted.seed, "played": lines}))
    else:
        print("\n".join(f"{name:22} {value}" for name, value in sums.items()))
        print(f"{'all hold' if report.holds else 'BROKEN'}; everything is left in {folder}")
    return 0 if report.holds else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--scenarios", type=_at_least_one, default=40, help="how many to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--algorithms", type=_algorithms, default=ALGORITHMS, help=f"of {','.join(ALGORITHMS)}")
    parser.add_argument("--only", type=_scenario, action="append", metavar="SCENARIO", help="play this one; repeatable")
    parser.add_argument("--client", choices=CLIENTS, help="a client that is wrong on purpose")
    parser.add_argument("--stands", type=_at_least_one, default=2, help="how many are played at once")
    parser.add_argument("--folder", help="where everything is left; a temporary folder if not given")
    parser.add_argument("--json", action="store_true", help="the sums and every verdict as JSON on stdout")
    return parser.parse_args(arguments)


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(ALGORITHMS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: known are {', '.join(ALGORITHMS)}")
    return names


def _scenario(text: str) -> Scenario:
    try:
        scenario = Scenario.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    _algorithms(scenario.algorithm)
    return scenario


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few")
    return number


if __name__ == "__main__":
    sys.exit(main())
