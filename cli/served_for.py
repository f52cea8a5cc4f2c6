"""What a gateway of the run's own has to serve: every model that its configuration names."""

from __future__ import annotations

from flows.config import FlowConfig, TeacherConfig
from flows.config.stages import stage_config
from flows.load_config import AnyConfig


def served_for(config: AnyConfig) -> tuple[list[str], str]:
    """The models that are trained or teach, each once, and the provider: of a pipeline that of its first stage.

    A gateway of the run's own has one. A stage that names another is refused by what the gateway says it serves.
    """
    stages = [config] if isinstance(config, FlowConfig) else [stage_config(config, stage) for stage in config.stages]
    provider = stages[0].model.provider
    return list(dict.fromkeys(model for stage in stages for model in _models_of(stage, provider))), provider


def _models_of(config: FlowConfig, provider: str) -> list[str]:
    models = [config.model.name] if config.model.provider == provider else []
    teacher = getattr(config, "teacher", None)
    if isinstance(teacher, TeacherConfig) and teacher.name and (teacher.provider or provider) == provider:
        models.append(teacher.name)
    return models
