"""Markdown that the Prefect UI shows, and model cards."""

from __future__ import annotations


def cell(text: str) -> str:
    """Text in a table: a message, a label or a path may hold anything."""
    return " ".join(text.split()).replace("|", "\\|")
