"""Serves training flows as deployments, as a worker's process would run them: `serve_flows.py NAME ALGORITHM…`.

One is served as docs/reliability.md says it, several by Prefect's `serve`: a runner starts their processes differently.
"""

from __future__ import annotations

import signal
import sys

from prefect import serve

import flows

if __name__ == "__main__":
    # A suite that a shell runs in the background hands on a SIGINT that is ignored: this would end by its time limit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, *algorithms = sys.argv[1:]
    if len(algorithms) == 1:
        getattr(flows, algorithms[0]).serve(name, pause_on_shutdown=False, print_starting_message=False)
    else:
        deployments = [getattr(flows, algorithm).to_deployment(name) for algorithm in algorithms]
        serve(*deployments, pause_on_shutdown=False, print_starting_message=False)
