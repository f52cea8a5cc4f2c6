"""What was measured, as people read it on every page, card and terminal."""

from __future__ import annotations

import math

import pytest

from algorithms.readings import MEASURED, Reading
from tasks.measured import NAMES, headline, rows, told


def test_every_number_that_an_evaluation_may_have_has_a_name() -> None:
    assert tuple(NAMES) == MEASURED


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("accuracy", Reading(0.5417, (0.466, 0.614)), "54.2% [47, 61]"),
        ("pass@4", Reading(1.0), "100.0%"),
        ("loss", Reading(2.34567), "2.346"),
        ("margin", Reading(-0.5), "-0.5"),
        ("loss", Reading(math.nan), "–"),
        ("accuracy", None, "–"),
    ],
)
def test_a_share_is_told_in_percent_and_another_number_as_it_is(name: str, number: Reading | None, words: str) -> None:
    assert told(name, number) == words


def test_a_number_that_only_one_of_two_evaluations_has_is_in_a_row_and_one_that_neither_has_is_not() -> None:
    after = {"accuracy": 0.5, "loss": None, "pass_at": {"pass@2": 0.75}, "intervals": {"pass@2": (0.6, 0.9)}}
    assert list(rows(None, after)) == [
        ("accuracy, sampled", "–", "50.0%"),
        ("pass@2, sampled", "–", "75.0% [60, 90]"),
    ]


def test_where_there_is_room_for_one_number_it_is_accuracy_if_that_was_measured() -> None:
    assert headline({"loss": 3.0}, {"loss": 2.0, "accuracy": 0.5}) == ("accuracy", "–", "50.0%")
    assert headline({"loss": 3.0}, {"loss": 2.0}) == ("loss", "3", "2")
    assert headline({"loss": 3.0}, None) is None
