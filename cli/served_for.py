"""What a gateway of the run's own has to serve: every model that its configuration names."""

from __future__ import annotations

from collections.abc import Iterator

from flows.config import FlowConfig, TeacherConfig
from flows.config.stages import stage_config
from flows.load_config import AnyConfig


def served_for(config: AnyConfig) -> tuple[list[str], str]:
    """The models that are trained or teach, each once, and the provider: of a pipeline that of its first stage.

    A gateway of the run's own has one. A stage that names another is refused by what the gateway says it serves.
    """
    stages = _stages(config)
    provider = stages[0].model.provider
    return list(dict.fromkeys(name for stage in stages for name, at in _models_of(stage) if at == provider)), provider


def models_named(config: AnyConfig) -> list[str]:
    """The same models, whichever the provider."""
    return list(dict.fromkeys(name for stage in _stages(config) for name, _ in _models_of(stage)))


def _stages(config: AnyConfig) -> list[FlowConfig]:
    return [config] if isinstance(config, FlowConfig) else [stage_config(config, stage) for stage in config.stages]


def _models_of(config: FlowConfig) -> Iterator[tuple[str, str]]:
    """Model and provider, of what is trained and of a teacher with a model of its own."""
    own = config.model
    yield own.name, own.provider
    teacher = getattr(config, "teacher", None)
    if isinstance(teacher, TeacherConfig) and teacher.name:
        yield teacher.name, teacher.provider or own.provider
