"""pass@k: the chance that at least one of k completions of a prompt is correct (arXiv 2107.03374, eq. 1)."""

from __future__ import annotations

from math import comb


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The unbiased estimate 1 − C(n − c, k) / C(n, k) from n completions of which c are correct; in 0…1.

    It is the share of the ways to pick k of the n completions that hold a correct one. `1 − (1 − c/n)^k`, which one
    might write instead, is too low. Whole numbers are divided once, at the end: exact to the last bit for any n.

    Args:
        samples: n, completions that were drawn, all alike.
        correct: c, how many of them are correct.
        k: how many tries somebody has.

    Raises:
        ValueError: fewer completions than tries, or more correct ones than there are; names the numbers.
    """
    if not 0 <= correct <= samples:
        raise ValueError(f"correct = {correct}: must be 0 to {samples}, the completions that were drawn")
    if not 1 <= k <= samples:
        raise ValueError(
            f"pass@{k} cannot be told from {samples} completions of a prompt: k is 1 to {samples}; draw more, or take "
            "a smaller k"
        )
    ways = comb(samples, k)
    return (ways - comb(samples - correct, k)) / ways
