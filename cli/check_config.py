"""What a command checks before it starts anything: a mistake is told in a moment, and leaves nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from flows.checks.prepare import check_inputs
from flows.config.pipeline import PipelineConfig
from flows.load_config import AnyConfig
from flows.stages.checks import check_pipeline_inputs

LONG_S = 1.5


def check_config(algorithm: str, config: AnyConfig) -> None:
    """Everything that needs no endpoint, of one algorithm's configuration or of every stage's.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: it cannot be used; of a pipeline the stage is named.
    """
    if isinstance(config, PipelineConfig):
        with _said_if_long("Reading the stages' data"):
            check_pipeline_inputs(config)
    else:
        with _said_if_long(f"Reading {config.data.source}"):
            check_inputs(algorithm, config)


@contextmanager
def _said_if_long(line: str) -> Iterator[None]:
    """Say on stderr what is being done, once somebody may wonder: a million examples take a while."""
    timer = Timer(LONG_S, print, [line], {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
