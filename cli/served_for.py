"""What an endpoint of the run's own has to serve: every model that its configuration names."""

from __future__ import annotations

from flows.load_config import AnyConfig


def served_for(config: AnyConfig) -> tuple[list[str], str]:
    """The models that are trained or teach, each once, and the provider."""
    teacher = getattr(config, "teacher", None)
    names = [config.model.name, *([teacher.name] if teacher is not None and teacher.name else [])]
    return list(dict.fromkeys(names)), config.model.provider
