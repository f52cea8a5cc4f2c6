"""The one error of this package that is the user's to mend."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be had or used; the message says what to do about it."""
