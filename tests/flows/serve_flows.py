"""Serves training flows as deployments, as a worker's process would run them: `serve_flows.py NAME ALGORITHM…`."""

from __future__ import annotations

import sys

from prefect import serve

import flows

if __name__ == "__main__":
    deployments = [flows.FLOWS[algorithm].to_deployment(sys.argv[1]) for algorithm in sys.argv[2:]]
    serve(*deployments, pause_on_shutdown=False, print_starting_message=False)
