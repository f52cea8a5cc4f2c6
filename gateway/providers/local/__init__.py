"""The embedded engine: real LoRA training of small Llama models on this machine's CPU."""

from gateway.providers.local.options import EngineOptions
from gateway.providers.local.provider import LocalProvider

__all__ = ["EngineOptions", "LocalProvider"]
