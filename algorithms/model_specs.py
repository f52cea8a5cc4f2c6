"""The sizes of a model that decide what it costs; `model_specs.toml` has those of common open ones.

Those of any other are read from its `config.json`: `algorithms.config_json`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
        ValueError: an unknown name; the message names the nearest.
    """
    models = known_models()
    by_lower = {known.lower(): spec for known, spec in models.items()}
    wanted = name.lower()
    if wanted in by_lower:
        return by_lower[wanted]
    short = {known.rpartition("/")[2]: spec for known, spec in by_lower.items()}
    if (found := short.get(wanted.rpartition("/")[2])) is not None:
        return found
    raise ValueError(f"the sizes of model {name!r} are not known: {did_you_mean(name, models)}")
