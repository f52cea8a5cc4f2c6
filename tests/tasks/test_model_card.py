"""The model card: a valid one of the Hugging Face Hub's, with everything that a stranger needs and nothing private."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from tasks.model_card import model_card
from tasks.serving import ANY_QUESTION, Serving, how_to_use, shared_question

FACTS = {
    "rank": 16,
    "alpha": 32.0,
    "target_modules": ["q_proj", "v_proj"],
    "modules": 60,
    "parameters": 1_228_800,
    "dtypes": ["F32"],
    "trained": True,
    "unchecked": [],
}


def evaluation(accuracy: float, **also: Any) -> dict[str, Any]:
    return {"prompts": 81, "samples": 4, "temperature": 1.0, "accuracy": accuracy, "finished_fraction": 0.5, **also}


def record(source: str = "addition-1digit", **config: Any) -> dict[str, Any]:
    return {
        "algorithm": "grpo",
        "config": {
            "cycles": 12,
            "seed": 0,
            "groups_per_cycle": 8,
            "group_size": 8,
            "model": {"name": "smollm2-135m-instruct", "initial_state_id": "st_0"},
            "lora": {"rank": 16, "alpha": 32.0},
            "data": {"source": source},
            "rewards": [{"function": "number", "weight": 1.0}],
            "optimizer": {"learning_rate": 5e-4},
            "sampling": {"max_tokens": 24},
            "evaluation": {"reward": None},
            **config,
        },
        "data": {"description": f"{source}: 59 training examples, 22 held out; by hash", "fingerprint": "f" * 64},
        "git": {"commit": "c" * 40, "dirty": False},
        "python": "3.11.7",
        "packages": {"prefect": "3.9.1", "torch": None},
    }


SUMMARY: dict[str, Any] = {
    "cycles": 12,
    "provider": "local",
    "options": {"std": "population", "teacher": {"name": "/home/alice/teacher"}},
    "evaluation_before": evaluation(0.12),
    "evaluation_after": evaluation(0.93, pass_at={"pass@4": 0.98}, intervals={"accuracy": (0.9, 0.95)}),
    "operations": {"sample": 96},
    "tokens": {"sampled": 9000},
    "adapter_facts": FACTS,
    "artifact_id": "art_1",
    "state_id": "st_9",
    "adapter_sha256": "a" * 64,
    "adapter": "/home/alice/runs/sums/adapter",
    "run_folder": "/home/alice/runs/sums",
}


def serving(**other: Any) -> Serving:
    plain = {"name": "sums", "model": "smollm2-135m-instruct", "rank": 16, "max_tokens": 24, "stop_token_ids": [2, 0]}
    return Serving(**{**plain, **other})


def front_matter(card: str) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return parsed


def test_the_card_is_one_of_the_hubs() -> None:
    text = model_card(record(), SUMMARY, serving())
    card = ModelCard(text)
    assert card.data.to_dict() == front_matter(text)
    assert card.data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert (card.data.library_name, card.data.pipeline_tag, card.data.license) == (
        "peft",
        "text-generation",
        "apache-2.0",
    )
    assert {"lora", "grpo"} <= set(card.data.tags or [])
    assert card.content.count("---\n") == 2
    assert "Q4_1 quantisation" in text, "the base on the Hub has other weights than the one that was trained on"


def test_it_says_what_was_trained_how_and_how_good_it_is() -> None:
    text = model_card(record(), SUMMARY, serving())
    for said in (
        "| accuracy, sampled | 12.0% | 93.0% [90, 95] |",
        "| pass@4, sampled | – | 98.0% |",
        "On 81 prompts of the same data, which were not trained on; 4 samples of each at temperature 1.0",
        "judged by `number`. Nothing else was measured",
        "| data | addition-1digit: 59 training examples, 22 held out; by hash |",
        f"| data's fingerprint | `{'f' * 64}` |",
        '| its options | std = "population"',
        "| cycles | 12 of 12; groups_per_cycle = 8, group_size = 8 |",
        "| LoRA | rank 16, alpha 32; on q_proj, v_proj |",
        "| optimizer | AdamW: learning_rate = 0.0005 |",
        "| began as | state `st_0` |",
        "| operations | sample = 96 |",
        "| tokens | sampled = 9000 |",
        "| state it was exported from | `st_9` |",
        f"commit `{'c' * 40}`",
        "Python 3.11.7; prefect 3.9.1 |",
    ):
        assert said in text, said


def test_without_an_evaluation_it_says_that_nothing_is_known() -> None:
    bare = {**SUMMARY, "evaluation_before": None, "evaluation_after": None, "adapter_facts": None}
    assert "How good it is, is not known" in model_card(record(), bare, serving())


def test_a_path_is_told_by_its_last_part_alone() -> None:
    private = record(
        "/home/alice/secret-project/questions.jsonl",
        model={"name": "~/models/own-llama", "initial_state_id": None},
        rewards=[{"function": "graders:closeness", "arguments": {"table": "../alice/table.csv"}}],
    )
    text = model_card(private, SUMMARY, serving(model="~/models/own-llama"))
    assert "alice" not in text
    assert "secret-project" not in text
    assert "~" not in text
    assert "questions.jsonl: 59 training examples" in text
    assert front_matter(text)["base_model"] == "own-llama"
    assert "base_model" not in front_matter(model_card(private, SUMMARY, serving(model="tiny"))), (
        "nobody has published it"
    )
    assert "license" not in front_matter(text), "nothing is known of its licence"
    assert "`base` stands for a copy of the model folder `own-llama`" in text


def test_a_name_cannot_break_out_of_the_front_matter_or_a_table() -> None:
    odd = 'x"\n---\nlicense: none'
    text = model_card(record(f"{odd}|"), SUMMARY, serving(model=f"org/{odd}"))
    assert front_matter(text)["base_model"] == f"org/{odd}"
    assert r"\|" in text


def test_the_question_is_of_a_public_data_set_and_never_of_anybodys_own(tmp_path: Path) -> None:
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text('{"messages": [{"role": "user", "content": "3 + 5?"}]}\n')
    assert shared_question("addition-1digit", heldout) == [{"role": "user", "content": "3 + 5?"}]
    assert shared_question("reasoning-gym:chain_sum", heldout) != ANY_QUESTION
    assert shared_question("data/patients.jsonl", heldout) == ANY_QUESTION
    assert shared_question("addition-1digit", tmp_path / "none.jsonl") == ANY_QUESTION


def commands(text: str) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_commands_are_filled_in_and_split_as_a_shell_does() -> None:
    asked = [{"role": "user", "content": "Isn't 3 + 5 $HOME?"}]
    typed = commands(how_to_use(serving(rank=12, question=asked, template=True)))
    template = "adapter/chat_template.jinja"
    fetch, vllm, ask_vllm, convert, convert_lora, llama, ask_llama = typed
    assert fetch == ["whitney", "model", "smollm2-135m-instruct", "--copy-to", "base"]
    adapter = ["--enable-lora", "--lora-modules", "sums=adapter", "--max-lora-rank", "16"]
    assert vllm == ["vllm", "serve", "base", *adapter, "--chat-template", template]
    assert convert == ["python", "llama.cpp/convert_hf_to_gguf.py", "base", "--outfile", "base.gguf"]
    assert convert_lora[2:] == ["--base", "base", "adapter", "--outfile", "adapter.gguf"]
    assert llama[:5] == ["llama-server", "-m", "base.gguf", "--lora", "adapter.gguf"]
    assert llama[5:] == ["--jinja", "--chat-template-file", template]
    body = {"messages": asked, "max_tokens": 24, "temperature": 0}
    assert json.loads(ask_llama[-1]) == body
    assert json.loads(ask_vllm[-1]) == {"model": "sums", "stop_token_ids": [2, 0], **body}


@pytest.mark.parametrize(
    ("rank", "most"), [(1, "1"), (4, "8"), (16, "16"), (17, "32"), (300, "320"), (512, "512"), (1024, None)]
)
def test_vllm_is_given_a_rank_that_it_takes_or_the_advice_to_merge(rank: int, most: str | None) -> None:
    text = how_to_use(serving(rank=rank))
    if most is None:
        assert "this one's is 1024: merge it" in text
        assert "vllm serve" not in text
    else:
        assert f"--max-lora-rank {most}\n" in text


def test_a_base_on_the_hub_is_fetched_from_there_and_a_merged_folder_needs_none() -> None:
    assert commands(how_to_use(serving(model="Qwen/Qwen3-8B")))[0] == [
        *("hf", "download", "Qwen/Qwen3-8B", "--local-dir", "base")
    ]
    merged = commands(how_to_use(serving(name="sums-merged", merged=True)))
    assert [words[:3] for words in merged if "curl" not in words] == [
        ["vllm", "serve", "sums-merged"],
        ["python", "llama.cpp/convert_hf_to_gguf.py", "sums-merged"],
        ["llama-server", "-m", "sums-merged.gguf"],
    ]
    card = model_card(record(), SUMMARY, serving(merged=True))
    assert front_matter(card)["library_name"] == "transformers"
    assert front_matter(card)["base_model_relation"] == "finetune"


def test_what_llama_cpp_cannot_convert_is_said() -> None:
    text = how_to_use(serving(model="tiny"))
    assert "llama.cpp's converter does not read" in text
    assert "convert_hf_to_gguf.py" not in text
