"""Errors of users' functions quote what they like; the key is taken out, and nothing else is changed."""

from __future__ import annotations

import os
import traceback

import pytest
from pydantic import SecretStr

from tasks.redaction import keyless, redact, told

KEY = "planted-key-'with\\-quotes"


def raised_by(quote: str, *, caused: bool = False) -> Exception:
    error = ValueError("it failed" if caused else quote)
    error.__cause__ = LookupError(quote)
    return error


@pytest.mark.parametrize("caused", [False, True])
def test_an_error_that_quotes_the_environment_or_was_caused_by_one_loses_the_key_and_its_frames(
    caused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", KEY)
    error = keyless(raised_by(f"{dict(os.environ)}", caused=caused))
    said = "".join(traceback.format_exception(error))
    assert KEY not in said
    assert repr(KEY)[1:-1] not in said
    assert str(error).startswith("ValueError: ")
    assert error.__cause__ is None


def test_a_key_that_is_not_the_environments_is_taken_out_where_it_is_named() -> None:
    error = raised_by(f"sent {KEY}")
    assert told(error, SecretStr(KEY)) == "ValueError: sent [key]"
    assert keyless(error, SecretStr(KEY)) is not error


def test_an_error_that_quotes_no_key_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "short")
    error = raised_by("a short text")
    assert keyless(error) is error
    assert redact("a short text") == "a short text"
