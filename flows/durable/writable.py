"""A run folder that cannot be written to, or not any more, is told by the field that says where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.config import ConfigError


@contextmanager
def writable(output_dir: Path) -> Iterator[None]:
    """Make what the system refuses in the block, for rights or for space, a mistake in `output_dir`.

    Raises:
        ConfigError: it has refused something; names the folder, and what the system says.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"output_dir = {str(output_dir)!r} cannot be written to: {error}") from error
