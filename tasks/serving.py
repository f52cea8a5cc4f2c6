"""The commands that put a trained adapter to use, with a run's own names filled in.

Looked at for this: transformers 5.24 and peft 0.21 (run by a test); vLLM 0.22 (the fields of its LoRAConfig; not run);
llama.cpp as in llama-cpp-python 0.3.36 (its converters run; the flags of llama-server read in its source).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.origin import is_local, origin, public_name
from tasks.data import REASONING_GYM
from tasks.datasets import SHIPPED
from tasks.examples import Message, user

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What `--max-lora-rank` takes (vllm.config.lora, MaxLoRARanks)."""

TEMPLATE_FILE = "chat_template.jinja"
"""Beside the adapter, where it was trained on another template than its base model's own."""

TEMPLATE_PATH = f"adapter/{TEMPLATE_FILE}"

ANY_QUESTION = user("Your question.")


@dataclass(frozen=True, slots=True)
class Serving:
    """What the commands are about. `template`: the adapter's folder has a chat template that is to be used.

    A `merged` folder holds the weights themselves, and its template is its own: there is no base, and no adapter.
    """

    name: str
    model: str
    rank: int
    max_tokens: int
    stop_token_ids: Sequence[int]
    question: Sequence[Message] = ANY_QUESTION
    template: bool = False
    merged: bool = False

    @property
    def folder(self) -> str:
        """The folder that an engine is started on, seen from beside the adapter's or the merged one."""
        return self.name if self.merged else "base"


def shared_question(source: str, heldout: Path) -> Sequence[Message]:
    """What the commands ask: of a public data set the first prompt in heldout.jsonl; of anybody's own data nothing."""
    public = source in SHIPPED or source.startswith(REASONING_GYM)
    try:
        with heldout.open("rb") as rows:
            question: list[Message] = json.loads(rows.readline())["messages"]
    except (OSError, ValueError, KeyError):
        return ANY_QUESTION
    return question if public else ANY_QUESTION


def how_to_use(serving: Serving) -> str:
    """The section of a model card: transformers and peft, vLLM, llama.cpp."""
    return "\n\n".join(
        [
            "## Use",
            _where(serving),
            *_fetch_base(serving),
            f"### {'transformers' if serving.merged else 'transformers and peft'}",
            f"`pip install torch {'transformers' if serving.merged else 'transformers peft'}`, then:",
            f"```python\n{python_snippet(serving)}```",
            "### vLLM",
            _vllm(serving),
            "### llama.cpp",
            _llama_cpp(serving),
        ]
    )


def python_snippet(serving: Serving) -> str:
    """A program that prints the model's greedy answer to a question."""
    folder, other = json.dumps(serving.folder), serving.template
    imports = ["from transformers import AutoModelForCausalLM, AutoTokenizer"]
    model = f"AutoModelForCausalLM.from_pretrained({folder})"
    if not serving.merged:
        imports = ["from peft import PeftModel", *imports]
        model = f'PeftModel.from_pretrained({model}, "adapter")'
    if other:
        imports = ["from pathlib import Path", "", *imports]
    template = [f"    chat_template=Path({json.dumps(TEMPLATE_PATH)}).read_text(),"] if other else []
    lines = [
        *imports,
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({folder})",
        f"model = {model}",
        f"question = {json.dumps(list(serving.question), ensure_ascii=False)}",
        "prompt = tokenizer.apply_chat_template(",
        '    question, add_generation_prompt=True, return_tensors="pt", return_dict=True,',
        *template,
        ")",
        f"stop = {list(serving.stop_token_ids)}  # the tokens that it was trained to end a reply with",
        f"reply = model.generate(**prompt, max_new_tokens={serving.max_tokens}, do_sample=False, eos_token_id=stop)",
        'print(tokenizer.decode(reply[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))',
    ]
    return "\n".join(lines) + "\n"


def _where(serving: Serving) -> str:
    if serving.merged:
        return f"The commands are typed in the folder that holds this one, whose name they take to be `{serving.name}`."
    return "The commands are typed in the folder that holds this one, whose name they take to be `adapter`."


def _fetch_base(serving: Serving) -> list[str]:
    if serving.merged:
        return []
    if is_local(serving.model):
        return [f"`base` stands for a copy of the model folder `{public_name(serving.model)}` that it was trained on."]
    model = shlex.quote(serving.model)
    fetch = f"hf download {model} --local-dir base" if "/" in serving.model else f"whitney model {model} --copy-to base"
    return [f"The base model, once:\n\n```sh\n{fetch}\n```"]


def _vllm(serving: Serving) -> str:
    words = ["vllm", "serve", serving.folder]
    if not serving.merged:
        rank = next((most for most in VLLM_RANKS if most >= serving.rank), None)
        if rank is None:
            return (
                f"vLLM serves adapters up to rank {VLLM_RANKS[-1]}, this one's is {serving.rank}: merge it "
                "(`whitney export RUN --merge`) and serve the folder."
            )
        words += ["--enable-lora", "--lora-modules", f"{serving.name}=adapter", "--max-lora-rank", str(rank)]
    if serving.template:
        words += ["--chat-template", TEMPLATE_PATH]
    return f"```sh\n{shlex.join(words)}\n```\n\n{_ask(serving, 8000, model=serving.name, **_stops(serving))}"


def _llama_cpp(serving: Serving) -> str:
    if not origin(serving.model).llama_cpp:
        return "llama.cpp's converter does not read this base model's tokenizer, which is one of this project's own."
    gguf = f"{serving.folder}.gguf"
    convert = [["python", "llama.cpp/convert_hf_to_gguf.py", serving.folder, "--outfile", gguf]]
    serve = ["llama-server", "-m", gguf]
    if not serving.merged:
        converter = "llama.cpp/convert_lora_to_gguf.py"
        convert.append(["python", converter, "--base", "base", "adapter", "--outfile", "adapter.gguf"])
        serve += ["--lora", "adapter.gguf"]
    if serving.template:
        serve += ["--jinja", "--chat-template-file", TEMPLATE_PATH]
    lines = "\n".join(shlex.join(words) for words in (*convert, serve))
    ready = "With llama.cpp's sources in `llama.cpp`, the packages of its `requirements.txt`, and `llama-server` built:"
    return f"{ready}\n\n```sh\n{lines}\n```\n\n{_ask(serving, 8080)}"


def _stops(serving: Serving) -> dict[str, list[int]]:
    """A base model's own settings may not know the token that another template ends a turn with."""
    return {"stop_token_ids": list(serving.stop_token_ids)} if serving.template else {}


def _ask(serving: Serving, port: int, **also: object) -> str:
    """The request of the OpenAI-compatible servers."""
    body = {**also, "messages": list(serving.question), "max_tokens": serving.max_tokens, "temperature": 0}
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return f"```sh\ncurl {url} -H 'Content-Type: application/json' -d {data}\n```"
