"""Model folders on disk: what the tokenizer, the chat template and the engine read. No torch, no HTTP client."""

from models.errors import ModelError
from models.folder import ModelFolder
from models.resolve import BUILT_IN, cache_folder, present, resolve

__all__ = ["BUILT_IN", "ModelError", "ModelFolder", "cache_folder", "present", "resolve"]
