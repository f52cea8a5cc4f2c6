"""Serves the GRPO flow as a deployment, as a worker's process would run it. Started by test_cancel_and_retry.py."""

from __future__ import annotations

import sys

import flows

if __name__ == "__main__":
    flows.grpo.serve(name=sys.argv[1], pause_on_shutdown=False, print_starting_message=False)
