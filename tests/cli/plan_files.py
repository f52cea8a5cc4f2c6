"""Configurations that plans are made of, and the rows of a gateway's ledger that none of them adds to."""

from __future__ import annotations

import sqlite3

from gateway.launch import GatewayProcess
from gateway.storage import DataDirectory

GRPO = """
algorithm = "grpo"
cycles = 4
groups_per_cycle = 2
group_size = 4
model = { name = "tiny" }
sampling = { max_tokens = 6 }
evaluation = { samples = 2, max_prompts = 4 }
"""
DAPO = GRPO.replace('"grpo"', '"dapo"')
SFT = GRPO.replace('"grpo"', '"sft"').replace("groups_per_cycle = 2\ngroup_size = 4", "batch_size = 3")
PIPELINE = """
algorithm = "pipeline"
shared = { model = { name = "tiny" }, evaluation = { enabled = false } }
[[stages]]
algorithm = "sft"
config = { cycles = 3, batch_size = 4 }
[[stages]]
name = "rl"
algorithm = "grpo"
config = { cycles = 2, groups_per_cycle = 2, group_size = 4 }
"""
PRICES = """
currency = "€"
operations = { sample = 0.5 }
tokens = { prefill = 1_000_000 }
gpu = { kind = "h100", count = 2, per_hour = 3600 }
"""
NEVER = GRPO + 'rewards = [{ function = "regex", arguments = { pattern = "no digit" } }]'
FILES = {"grpo": GRPO, "dapo": DAPO, "sft": SFT, "never": NEVER, "pipeline": PIPELINE, "prices": PRICES}


def rows_in_ledger(gateway: GatewayProcess) -> list[int]:
    with sqlite3.connect(DataDirectory(gateway.data_dir).ledger) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("sessions", "runs", "operations", "billing")
        ]
    connection.close()
    return counts
