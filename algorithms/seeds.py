"""Seeds of requests, derived so that no two requests of a run share a random stream."""

from __future__ import annotations

import hashlib


def request_seed(run_seed: int, cycle: int, group: int, round_: int = 0) -> int:
    """The seed of one `sample` request, 0 ≤ seed < 2**63: the same in every process, unrelated to its neighbours'.

    Args:
        run_seed: the run's own seed, any int.
        cycle: zero-based.
        group: zero-based place of the prompt within the cycle.
        round_: zero-based resampling round, or which purpose the request serves when it is not training.
    """
    name = f"whitney-pipelines/request/{run_seed}/{cycle}/{group}/{round_}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
