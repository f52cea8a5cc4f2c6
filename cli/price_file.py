"""The price file that `whitney init prices` writes: every price there is, none of them filled in."""

from __future__ import annotations

from algorithms.gpus import gpus
from tasks.prices import OPERATIONS, TOKENS

PRICES = "prices"


def starter_prices(path: str) -> str:
    """The file's text; it prices nothing until a line is filled in."""
    operations = "\n".join(f"# {kind} = 0.0" for kind in OPERATIONS)
    tokens = "\n".join(f"# {name} = 0.0" for name in TOKENS)
    return f"""# Your prices, for `whitney plan CONFIG --prices {path}` and [budget].
# What has no price is counted as 0, and named. None is filled in: take the # away and write what you pay.
currency = "USD"

[operations] # of one operation
{operations}

[tokens] # of a million tokens, as the ledger counts them
{tokens}

# Time is reckoned from FLOPs: count × peak × utilization. Another --gpu than this one has no price by the hour.
# [gpu]
# kind = "h100" # {", ".join(gpus())}
# count = 1
# per_hour = 0.0 # of one
# utilization = 0.4 # the share of the peak that is really had; sampling has less of it than training
"""
