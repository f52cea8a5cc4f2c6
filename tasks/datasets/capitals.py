"""Capitals, split by country. The table holds only countries whose capital and its spelling nobody disputes."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import files

from tasks.examples import Example, example, user

HELDOUT_SHARE = 4  # every fourth country


def capitals() -> tuple[list[Example], list[Example]]:
    """Three quarters of the countries of capitals.jsonl to train on, one quarter held out."""
    lines = files("tasks.datasets").joinpath("capitals.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: sha256(f"capitals/{row['country']}".encode()).digest())
    examples = [
        example(
            user(f"What is the capital of {row['country']}?"),
            row["capital"],
            id=f"capitals/{row['country']}",
            key=f"capitals/{row['country']}",
        )
        for row in rows
    ]
    heldout = len(examples) // HELDOUT_SHARE
    return examples[heldout:], examples[:heldout]
