"""The sizes of a model that decide what it costs: `model_specs.toml` for common open ones, or any `config.json`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from algorithms.names import did_you_mean

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder of transformer blocks with grouped-query attention and gated feed-forward layers.

    Args:
        name: its repository, as an endpoint's capabilities write it.
        layers: transformer blocks.
        d_model: D, the width of the residual stream.
        heads: query heads.
        kv_heads: key and value heads; fewer than `heads` where groups share them.
        head_size: width of a head.
        d_ff: width of a feed-forward layer, of one expert in a mixture of experts.
        vocab: rows of the embedding, padding included.
        tied: whether the output layer is the embedding.
        experts: of a layer; 1 is a dense model.
        experts_per_token: of those, how many a token meets.
        shared_experts: met by every token, beside those.
        attention_bias: biases of the query, key and value projections.
        source: where the numbers are from.
    """

    name: str
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_size: int
    d_ff: int
    vocab: int
    tied: bool
    experts: int = 1
    experts_per_token: int = 1
    shared_experts: int = 0
    attention_bias: bool = False
    source: str = ""

    @property
    def total(self) -> int:
        """All parameters, to within the norms' few thousand: what stays in memory."""
        return self._parameters(self.experts)

    @property
    def active(self) -> int:
        """Parameters a token meets: P of the cost formulas. The embedding's rows are looked up, so only the output
        layer's product counts."""
        looked_up = 0 if self.tied else self.vocab * self.d_model
        return self._parameters(self.experts_per_token) - looked_up

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2

    def _parameters(self, experts: int) -> int:
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.d_model * queries + 2 * self.d_model * keys
        if self.attention_bias:
            attention += queries + 2 * keys
        router = self.d_model * self.experts if self.experts > 1 else 0
        feed_forward = (experts + self.shared_experts) * 3 * self.d_model * self.d_ff
        embeddings = self.vocab * self.d_model * (1 if self.tied else 2)
        norms = (2 * self.layers + 1) * self.d_model
        return self.layers * (attention + router + feed_forward) + embeddings + norms


@cache
def known_models() -> dict[str, ModelSpec]:
    """The data file's models by their name."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["models"]
    return {row["name"]: ModelSpec(**row) for row in rows}


def model_spec(name: str) -> ModelSpec:
    """A known model, whatever the case; an Instruct, Base or dated variant has its family's sizes.

    Raises:
        ValueError: an unknown name; the message names near ones and the way out.
    """
    models = known_models()
    by_lower = {known.lower(): spec for known, spec in models.items()}
    wanted = name.lower()
    if wanted in by_lower:
        return by_lower[wanted]
    short = {known.rpartition("/")[2]: spec for known, spec in by_lower.items()}
    if (found := short.get(wanted.rpartition("/")[2])) is not None:
        return found
    hint = did_you_mean(name, models)
    raise ValueError(f"the sizes of model {name!r} are not known: {hint}give its config.json, or one of {_listed()}")


def from_config_json(config: Mapping[str, Any], name: str) -> ModelSpec:
    """Read a Hugging Face `config.json`.

    Args:
        config: the parsed file. Of a multimodal model its `text_config` is read.
        name: what to call it.

    Raises:
        ValueError: a field that is needed is not there, or is not a positive integer; a shape that `ModelSpec` does not
            count (latent attention, layers that are not alike).
    """
    config = config.get("text_config") or config
    if other := [field for field in _OTHER_SHAPES if config.get(field)]:
        raise ValueError(
            f"config.json of {name}: {other[0]} = {config[other[0]]!r} is a shape that is not counted here"
        )
    heads, d_model = _size(config, "num_attention_heads", name), _size(config, "hidden_size", name)
    experts = next((int(config[key]) for key in _EXPERTS if config.get(key)), 1)
    dense_ff = config.get("moe_intermediate_size") if experts > 1 else None
    return ModelSpec(
        name=name,
        layers=_size(config, "num_hidden_layers", name),
        d_model=d_model,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or d_model // heads),
        d_ff=int(dense_ff) if dense_ff else _size(config, "intermediate_size", name),
        vocab=_size(config, "vocab_size", name),
        tied=bool(config.get("tie_word_embeddings", False)),
        experts=experts,
        experts_per_token=int(config.get("num_experts_per_tok") or config.get("experts_per_token") or 1),
        shared_experts=int(config.get("n_shared_experts") or 0),
        attention_bias=bool(config.get("attention_bias", config.get("model_type") == "qwen2")),
        source="config.json",
    )


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_OTHER_SHAPES = ("kv_lora_rank", "first_k_dense_replace", "mlp_only_layers", "linear_num_key_heads", "mamba_d_state")


def _size(config: Mapping[str, Any], field: str, name: str) -> int:
    value = config.get(field)
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"config.json of {name}: {field} must be a positive integer, and is {value!r}")
    return value


def _listed() -> str:
    return ", ".join(sorted(known_models()))
