from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from whitney import errors
from whitney.errors import (
    ApiError,
    ConfigurationError,
    ConflictError,
    ConnectionFailedError,
    GoneError,
    InvalidRequestError,
    NotFoundError,
    OperationCancelledError,
    OperationError,
    OperationFailedError,
    OperationNotSentError,
    PayloadTooLargeError,
    UnauthorizedError,
    UnavailableError,
    WaitTimeoutError,
    WhitneyError,
    api_error,
)

BODY = {"error": {"code": "some_code", "message": "said", "retryable": True, "details": {"path": "payload.data.3"}}}


def every_error() -> list[WhitneyError]:
    operation: dict[str, Any] = {"run_id": "run_1", "seq_id": 7, "kind": "forward", "code": "oom"}
    kinds = (OperationFailedError, OperationCancelledError, OperationNotSentError)
    plain = [ConfigurationError("a"), ConnectionFailedError("b"), WaitTimeoutError("c"), WhitneyError("d")]
    answers = [api_error(status, BODY, where="get_run run_id=run_1", request_id="req_1") for status in range(400, 600)]
    return [*plain, *(kind("e", **operation) for kind in kinds), *answers]


def test_every_error_survives_pickling_and_copying_with_all_it_says() -> None:
    for error in every_error():
        for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert type(twin) is type(error)
            assert str(twin) == str(error)
            assert vars(twin) == vars(error)


def test_the_tree_drawn_in_the_module_is_the_tree() -> None:
    classes = {
        kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    assert errors.__doc__ is not None
    assert {name for name in classes if name in errors.__doc__} == classes
    for kind in (UnauthorizedError, NotFoundError, ConflictError, InvalidRequestError, PayloadTooLargeError):
        assert issubclass(kind, ApiError)
    assert issubclass(GoneError, NotFoundError)
    for operation_kind in (OperationFailedError, OperationCancelledError, OperationNotSentError):
        assert issubclass(operation_kind, OperationError)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ApiError),
        (401, UnauthorizedError),
        (403, UnauthorizedError),
        (404, NotFoundError),
        (408, UnavailableError),
        (409, ConflictError),
        (410, GoneError),
        (413, PayloadTooLargeError),
        (422, InvalidRequestError),
        (425, UnavailableError),
        (429, UnavailableError),
        (500, UnavailableError),
        (507, UnavailableError),
    ],
)
def test_a_status_has_its_error_with_everything_the_endpoint_said(status: int, kind: type[ApiError]) -> None:
    error = api_error(status, BODY, where="run_operation run_id=run_1 seq_id=7 forward", request_id="req_1")
    assert type(error) is kind
    assert (error.status, error.code, error.retryable, error.request_id) == (status, "some_code", True, "req_1")
    assert error.details == {"path": "payload.data.3"}
    for part in ("run_1", "seq_id=7", "forward", str(status), "some_code", "said", "req_1"):
        assert part in str(error)


def test_errors_that_a_person_can_mend_say_how() -> None:
    assert "WHITNEY_API_KEY" in str(api_error(401, {}, where="x"))
    assert "fewer or shorter" in str(api_error(413, {}, where="x"))
    assert "WHITNEY_BASE_URL" in str(api_error(308, {}, where="x"))
    ended = {"error": {"code": "run_not_active", "message": "run r is failed (run_lost)"}}
    assert "a Retry goes on from the last saved state" in str(api_error(409, ended, where="x"))


@pytest.mark.parametrize("body", [{}, {"error": "text"}, {"error": None}, {"error": {"details": 5}}, {"detail": "x"}])
def test_an_error_in_another_form_is_still_one(body: dict[str, Any]) -> None:
    error = api_error(404, body, where="get_run run_id=run_1")
    assert error.code == "http_404"
    assert error.details == {}
    assert "get_run run_id=run_1: 404" in str(error)
