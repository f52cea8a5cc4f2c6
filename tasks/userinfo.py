"""Addresses without the user and the password that may stand in them: for people, files and pages."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_IN_WORDS = re.compile(r"(?<=://)[^/?#\s'\"]*@")


def without_userinfo(url: str) -> str:
    """A Prefect API, or its UI, may be named with a password in its URL."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def told_without_userinfo(words: str) -> str:
    """The same of every address in a sentence: an HTTP client's errors repeat the one that was asked."""
    return _IN_WORDS.sub("", words)
