"""Errors of users' functions quote what they like; the key is taken out, and nothing else is changed."""

from __future__ import annotations

import json
import os
import pickle
import traceback

import pytest
from pydantic import SecretStr

from tasks.python_process import environment
from tasks.redaction import keyless, redact, told

KEY = "planted-key-'with\\-quotes"


class UnsaidError(Exception):
    """Says less than it holds, as errors of clients do."""

    def __str__(self) -> str:
        return "401"


class Headers:
    """In no repr, as a request's headers."""

    def __init__(self, sent: str) -> None:
        self.sent = sent

    def __repr__(self) -> str:
        return "[secure]"


class Unshowable:
    def __repr__(self) -> str:
        raise LookupError("no repr")


def undecodable(text: str) -> Exception:
    try:
        f"é{text}".encode().decode("ascii")
    except UnicodeDecodeError as error:
        return error
    raise AssertionError("decoded")


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
    assert str(keyless(RuntimeError(f"sent {KEY}"), SecretStr(KEY))) == "sent [key]"


def test_an_error_that_quotes_no_key_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "short")
    error = raised_by("a short text")
    assert keyless(error) is error
    assert redact("a short text") == "a short text"


@pytest.mark.parametrize(
    "error",
    [
        undecodable(KEY),
        UnsaidError("401", {"authorization": f"Bearer {KEY}"}),
        UnsaidError(Headers(KEY)),
        ExceptionGroup("several", [ValueError("first"), *[UnsaidError(KEY)] * 20]),
        type(f"Error of {KEY}", (Exception,), {})("no words"),
    ],
    ids=["bytes", "argument", "pickle only", "group", "class"],
)
def test_a_key_that_an_error_holds_and_does_not_say_is_not_stored_with_it(error: Exception) -> None:
    clean = keyless(error, SecretStr(KEY))
    assert type(clean) is RuntimeError
    assert KEY.encode() not in pickle.dumps(clean)
    assert str(clean).startswith(
        ("UnicodeDecodeError: ", "UnsaidError: 401", "ExceptionGroup: several", "Error of [key]: ")
    )


@pytest.mark.parametrize("behind", [False, True])
def test_an_error_that_cannot_be_shown_is_replaced_by_what_it_says(behind: bool) -> None:
    error: Exception = UnsaidError(Unshowable())
    if behind:
        error = ValueError("it failed")
        error.__context__ = UnsaidError(Unshowable())
    assert str(keyless(error, SecretStr(KEY))) == ("ValueError: it failed" if behind else "UnsaidError: 401")


def test_an_error_that_has_no_words_or_cannot_say_them_is_told_by_its_type() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise KeyError("no words")

    assert told(ValueError()) == "ValueError"
    assert told(MuteError()) == "MuteError: its text cannot be read, KeyError"


@pytest.mark.parametrize("key", ['pl"anted-key', "pl'ant\"ed-key", "pl\\anted\\\\key", "plain-planted-key", KEY])
@pytest.mark.parametrize("quoted", [str, repr, json.dumps], ids=["as it is", "repr", "json"])
@pytest.mark.parametrize("again", [str, repr, json.dumps], ids=["once", "in a repr", "in json"])
def test_a_key_is_found_however_often_it_was_quoted(key: str, quoted: object, again: object) -> None:
    assert callable(quoted)
    assert callable(again)
    text = again(f"it's {quoted({'key': f'Bearer {key}'})}, it said")
    cleaned = redact(text, SecretStr(key))
    assert cleaned.replace("\\", "").count("Bearer [key]") == 1
    assert key[-4:] not in cleaned


def test_the_environment_of_a_process_for_users_functions_has_all_but_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", KEY)
    monkeypatch.setenv("whitney_api_key", KEY)
    monkeypatch.setenv("WHITNEY_BASE_URL", "http://here")
    given = environment(PYTHONHASHSEED="0")
    assert KEY not in given.values()
    assert (given["WHITNEY_BASE_URL"], given["PYTHONHASHSEED"]) == ("http://here", "0")
    assert redact(f"says {KEY}") == "says [key]"
