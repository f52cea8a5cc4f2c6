from __future__ import annotations

import pytest

from benchmarks.figures import Figure, table


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("f", 3.0, "s", 2.0, at_most=1.5), True),
        (Figure("f", 3.1, "s", 2.0, at_most=1.5), False),
        (Figure("f", 3.0, "tokens/s", 2.0, at_least=1.5), True),
        (Figure("f", 2.9, "tokens/s", 2.0, at_least=1.5), False),
        (Figure("f", 0.86, "", at_least=0.85), True),
        (Figure("f", 0.84, "", at_least=0.85), False),
        (Figure("f", 1.1, "MiB", 1.0, at_least=0.9, at_most=1.1), True),
        (Figure("f", 0.89, "MiB", 1.0, at_least=0.9, at_most=1.1), False),
        (Figure("f", 0.84, ""), None),
    ],
)
def test_a_target_is_of_the_ratio_where_there_is_a_peer_and_of_our_figure_where_there_is_none(
    figure: Figure, met: bool | None
) -> None:
    assert figure.met is met
    assert figure.record()["met"] is met


def test_the_table_has_ours_peer_ratio_and_target_side_by_side() -> None:
    figures = [
        Figure("flow", 6.6, "s", 6.0, at_most=1.0),
        Figure("accuracy", 0.9, "", at_least=0.85),
        Figure("memory", 2.0, "MiB", 2.0, at_least=0.9, at_most=1.1),
    ]
    heading, flow, accuracy, memory = [line.split() for line in table(figures).splitlines()]
    assert heading == ["ours", "peer", "ratio", "target"]
    assert flow == ["flow", "6.6", "6", "1.10", "≤", "1", "MISSED", "s"]
    assert memory == ["memory", "2", "2", "1.00", "≥", "0.9", "≤", "1.1", "met", "MiB"]
    assert accuracy == ["accuracy", "0.9", "≥", "0.85", "met"]
