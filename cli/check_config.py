"""What a command checks before it starts anything: a mistake is told in a moment, and leaves nothing."""

from __future__ import annotations

from flows.checks.prepare import check_inputs
from flows.config.pipeline import PipelineConfig
from flows.load_config import AnyConfig
from flows.stages.checks import check_pipeline_inputs


def check_config(algorithm: str, config: AnyConfig) -> None:
    """Everything that needs no endpoint, of one algorithm's configuration or of every stage's.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: it cannot be used; of a pipeline the stage is named.
    """
    if isinstance(config, PipelineConfig):
        check_pipeline_inputs(config)
    else:
        check_inputs(algorithm, config)
