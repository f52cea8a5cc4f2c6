"""The frozen base: weights every run of a model shares, and the shapes that follow from its config."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from safetensors import safe_open
from torch import Tensor

from models import ModelFolder
from models.folder import rope_parameters

# The linears of a layer that LoRA adapts, grouped by the product they are computed in: q, k and v read the same input,
# and so do gate and up, so each group is one matrix multiplication over the concatenated rows.
FUSED_LINEARS: dict[str, tuple[str, ...]] = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}

# One layer's weights, by the keys of FUSED_LINEARS; each [out, in].
LayerWeights = dict[str, Tensor]


@dataclass(frozen=True)
class Shapes:
    """A Llama's sizes. `width` is d_model; a key/value head serves `heads / kv_heads` query heads."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    context_tokens: int

    @property
    def query_width(self) -> int:
        """Columns of q, and of the attention's output."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """Columns of k, and of v."""
        return self.kv_heads * self.head_width

    def linear(self, name: str) -> tuple[int, int]:
        """(in, out) of one of the seven linears."""
        return {
            "q_proj": (self.width, self.query_width),
            "k_proj": (self.width, self.key_width),
            "v_proj": (self.width, self.key_width),
            "o_proj": (self.query_width, self.width),
            "gate_proj": (self.width, self.inner),
            "up_proj": (self.width, self.inner),
            "down_proj": (self.inner, self.width),
        }[name]


@dataclass(frozen=True)
class BaseWeights:
    """A loaded base model, fp32. `cosines` and `sines` are RoPE's tables, [context, head_width]."""

    name: str
    shapes: Shapes
    sha256: str
    norm_eps: float
    embedding: Tensor
    head: Tensor
    final_norm: Tensor
    attention_norms: list[Tensor]
    mlp_norms: list[Tensor]
    layers: list[LayerWeights]
    cosines: Tensor
    sines: Tensor


def load_base(folder: ModelFolder) -> BaseWeights:
    """Read a model folder into memory as fp32.

    fp32 whatever the files hold: without AVX-512 a bf16 product is many times slower, and sampler and trainer would
    disagree by 0.1 and more in log-probs.
    """
    config = folder.config
    shapes = _shapes(config, folder.context_tokens)
    handles = [safe_open(file, framework="pt") for file in folder.weight_files]
    where = {name: handle for handle in handles for name in handle.keys()}  # noqa: SIM118 - not a dict, a file

    def weight(name: str) -> Tensor:
        # A copy: a tensor that still points into the mapped file would keep all of the file resident.
        stored: Tensor = where[name].get_tensor(name)
        return stored.to(torch.float32, copy=True)

    embedding = weight("model.embed_tokens.weight")
    tied = config.get("tie_word_embeddings", True) or "lm_head.weight" not in where
    prefixes = [f"model.layers.{index}." for index in range(shapes.layers)]
    cosines, sines = _rope_tables(shapes, rope_parameters(config)[0])
    return BaseWeights(
        name=folder.name,
        shapes=shapes,
        sha256=_digest(folder),
        norm_eps=float(config["rms_norm_eps"]),
        embedding=embedding,
        head=embedding if tied else weight("lm_head.weight"),
        final_norm=weight("model.norm.weight"),
        attention_norms=[weight(f"{prefix}input_layernorm.weight") for prefix in prefixes],
        mlp_norms=[weight(f"{prefix}post_attention_layernorm.weight") for prefix in prefixes],
        layers=[_layer(prefix, weight) for prefix in prefixes],
        cosines=cosines,
        sines=sines,
    )


def _shapes(config: dict[str, int], context_tokens: int) -> Shapes:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    return Shapes(
        layers=config["num_hidden_layers"],
        width=width,
        inner=config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or width // heads,
        vocabulary=config["vocab_size"],
        context_tokens=context_tokens,
    )


def _layer(prefix: str, weight: Callable[[str], Tensor]) -> LayerWeights:
    return {
        group: torch.cat([weight(f"{prefix}{module_path(linear)}.weight") for linear in linears])
        for group, linears in FUSED_LINEARS.items()
    }


def module_path(linear: str) -> str:
    """A linear's place inside a layer, as Hugging Face and PEFT spell it."""
    return f"{'self_attn' if linear in ('q_proj', 'k_proj', 'v_proj', 'o_proj') else 'mlp'}.{linear}"


def _rope_tables(shapes: Shapes, theta: float) -> tuple[Tensor, Tensor]:
    """RoPE (arXiv 2104.09864) in Hugging Face's layout: the first half of a head rotates against the second."""
    exponents = torch.arange(0, shapes.head_width, 2, dtype=torch.float32) / shapes.head_width
    frequencies = 1.0 / theta**exponents
    angles = torch.outer(torch.arange(shapes.context_tokens, dtype=torch.float32), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _digest(folder: ModelFolder) -> str:
    """SHA-256 over the weight files: a state is only resumed on the base it was trained on."""
    digest = hashlib.sha256()
    for file in folder.weight_files:
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()
