from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from scripted_endpoint import FakeTime

from whitney.retry import RetryPolicy, retryable


def test_waits_double_up_to_the_longest() -> None:
    attempts = FakeTime().policy(base_s=0.25, longest_s=3.0).start()
    assert [attempts.wait_s() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_is_full_every_wait_is_drawn_from_zero_up() -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return random.Random(len(drawn)).uniform(low, high)

    attempts = FakeTime().policy(base_s=1.0, uniform=uniform).start()
    waits = [attempts.wait_s() for _ in range(3)]
    assert drawn == [(0.0, 1.0), (0.0, 2.0), (0.0, 4.0)]
    assert all(wait is not None and low <= wait <= high for wait, (low, high) in zip(waits, drawn, strict=True))


def test_retry_after_in_seconds_is_a_lower_bound_with_the_jitter_on_top() -> None:
    attempts = FakeTime().policy(base_s=0.25).start()
    assert attempts.wait_s("7") == 7.25
    assert attempts.wait_s("0") == 0.5


def test_retry_after_as_a_date_is_counted_from_now() -> None:
    time = FakeTime()
    date = format_datetime(datetime.fromtimestamp(time.now + 9, UTC), usegmt=True)
    assert time.policy(base_s=0.25).start().wait_s(date) == 9.25
    past = format_datetime(datetime.fromtimestamp(time.now - 9, UTC), usegmt=True)
    assert time.policy(base_s=0.25).start().wait_s(past) == 0.25


@pytest.mark.parametrize("header", ["soon", "", "-5", "nan", "Sun, 99 Foo 2026 25:61:61 GMT"])
def test_a_retry_after_that_says_nothing_usable_is_as_none(header: str) -> None:
    assert FakeTime().policy(base_s=0.25).start().wait_s(header) == 0.25


@pytest.mark.parametrize("header", ["86400", "inf", "1e300"])
def test_retry_after_is_honoured_up_to_a_cap(header: str) -> None:
    attempts = FakeTime().policy(base_s=0.25, retry_after_cap_s=60.0).start()
    assert attempts.wait_s(header) == 60.25


def test_there_is_no_wait_that_would_end_behind_the_deadline() -> None:
    time = FakeTime()
    attempts = time.policy(base_s=4.0, longest_s=4.0, deadline_s=10.0).start()
    assert attempts.wait_s() == 4.0
    time.now += 4.0
    assert attempts.wait_s() == 4.0
    time.now += 4.0
    assert attempts.wait_s() is None


def test_a_shorter_deadline_may_be_given_for_one_wait() -> None:
    attempts = FakeTime().policy(base_s=4.0, deadline_s=300.0).start()
    assert attempts.wait_s(within_s=3.0) is None
    assert attempts.wait_s() == 8.0


def test_any_number_of_attempts_can_be_counted() -> None:
    attempts = FakeTime().policy(longest_s=20.0).start()
    assert {attempts.wait_s() for _ in range(5000)} >= {20.0}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520, 599])
def test_passing_refusals_are_repeated(status: int) -> None:
    assert retryable(status, "anything")


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422])
def test_other_refusals_are_final(status: int) -> None:
    assert not retryable(status, "seq_conflict")


def test_of_the_conflicts_only_a_gap_passes() -> None:
    assert retryable(409, "seq_gap")
    assert not retryable(409, "seq_conflict")
    assert not retryable(409, None)


def test_the_defaults_are_those_of_real_time() -> None:
    assert RetryPolicy().start().wait_s("0") is not None
