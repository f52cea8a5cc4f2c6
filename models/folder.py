"""A model on disk in the Hugging Face layout, and what may be asked of it without loading a weight."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from models.errors import ModelError

ARCHITECTURE = "LlamaForCausalLM"


@dataclass(frozen=True)
class ModelFolder:
    """A checked folder with `config.json`, safetensors weights and `tokenizer.json`."""

    name: str
    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The Hugging Face `config.json`."""
        return _read_json(self.path / "config.json")

    @property
    def tokenizer_path(self) -> Path:
        """`tokenizer.json`, as the `tokenizers` library reads it."""
        return self.path / "tokenizer.json"

    @cached_property
    def tokenizer_sha256(self) -> str:
        """The digest of `tokenizer.json`: two models speak the same token ids when it is equal."""
        return hashlib.sha256(self.tokenizer_path.read_bytes()).hexdigest()

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        """`tokenizer_config.json`, empty where a model has none."""
        path = self.path / "tokenizer_config.json"
        return _read_json(path) if path.is_file() else {}

    @cached_property
    def chat_template(self) -> str | None:
        """The Jinja chat template: a file of its own, as newer folders have it, or the tokenizer config's field."""
        own_file = self.path / "chat_template.jinja"
        if own_file.is_file():
            return own_file.read_text(encoding="utf-8")
        template = self.tokenizer_config.get("chat_template")
        return template if isinstance(template, str) else None

    @property
    def eos_token(self) -> str | None:
        """The token that ends a reply, as text."""
        return self._special_token("eos_token")

    @property
    def bos_token(self) -> str | None:
        """The token that begins a text, as text."""
        return self._special_token("bos_token")

    @property
    def context_tokens(self) -> int:
        """The longest sequence the model was made for, in tokens."""
        return int(self.config["max_position_embeddings"])

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files that together hold every weight, in a fixed order."""
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            return [self.path / name for name in sorted(set(_read_json(index)["weight_map"].values()))]
        return [self.path / "model.safetensors"]

    def _special_token(self, key: str) -> str | None:
        token = self.tokenizer_config.get(key)
        if isinstance(token, dict):  # older folders spell a token as an AddedToken record
            token = token.get("content")
        return token if isinstance(token, str) else None

    def check(self) -> None:
        """Make sure the engine can run what lies here.

        Raises:
            ModelError: a file is missing, or the architecture has a feature the engine does not compute.
        """
        if not self.path.is_dir():
            raise ModelError(f"model {self.name!r}: {self.path} is not a folder")
        for needed in [self.path / "config.json", self.tokenizer_path]:
            if not needed.is_file():
                raise ModelError(f"model {self.name!r}: {needed.name} is missing in {self.path}")
        architectures = self.config.get("architectures") or []
        if ARCHITECTURE not in architectures:
            raise ModelError(f"model {self.name!r}: architecture {architectures} is not served, only {ARCHITECTURE} is")
        for weights in self.weight_files:
            if not weights.is_file():
                raise ModelError(f"model {self.name!r}: {weights.name} is missing in {self.path} (safetensors only)")
        for key, served in _SERVED_FEATURES.items():
            if self.config.get(key, served[0]) not in served:
                raise ModelError(f"model {self.name!r}: config.json has {key} = {self.config[key]!r}, served: {served}")
        rope_type = rope_parameters(self.config)[1]
        if rope_type != "default":
            raise ModelError(f"model {self.name!r}: rope scaling {rope_type!r} is not served, only plain RoPE is")


# The first value is what Hugging Face assumes when the key is absent.
_SERVED_FEATURES: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "hidden_act": ("silu",),
}


def rope_parameters(config: dict[str, Any]) -> tuple[float, str]:
    """RoPE's base and type; transformers 5 nests both, older folders keep them at the top."""
    nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = nested.get("rope_theta") or config.get("rope_theta") or 10000.0
    return float(theta), str(nested.get("rope_type") or nested.get("type") or "default")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} should hold a JSON object, it holds a {type(content).__name__}")
    return content
