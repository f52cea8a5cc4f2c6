"""The engine on the real model, beside transformers and peft."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from engine_harness import TestRun, datum, engine, sampling
from peft import PeftModel
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import models

pytestmark = pytest.mark.smollm2

FOLDER = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(models.resolve(FOLDER).tokenizer_path))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestRun]:
    made = TestRun.create(engine(tmp_path_factory.mktemp("engine"), model=FOLDER, threads=2), rank=4, alpha=8.0)
    yield made
    made.engine.release_run("run")


def chat(tokenizer: Tokenizer, question: str) -> list[int]:
    ids: list[int] = tokenizer.encode(
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
    ).ids
    return ids


def test_it_knows_the_capital_of_france(run: TestRun, tokenizer: Tokenizer) -> None:
    payload = sampling(
        chat(tokenizer, "What is the capital of France?"), max_tokens=12, temperature=0.0, stop_token_ids=[2]
    )
    (reply,) = run.do("sample", payload, sampler_id=run.snapshot())["sequences"]
    assert tokenizer.decode(reply["tokens"]) == "The capital of France is Paris."
    assert reply["stop_reason"] == "stop"


# peft 0.21 still asks transformers 5 by the attribute's old name
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_a_trained_adapter_gives_peft_the_engines_logprobs(run: TestRun, tokenizer: Tokenizer, tmp_path: Path) -> None:
    prompt = chat(tokenizer, "What is 3 + 4?")
    sampler = run.snapshot()
    replies = run.do("sample", sampling(prompt, 4, max_tokens=12, seed=1), sampler_id=sampler)["sequences"]
    for reply in replies:
        forced = run.logprobs(prompt + reply["tokens"], sampler)[-len(reply["tokens"]) :]
        assert reply["logprobs"] == pytest.approx(forced, abs=1e-3)

    answer = tokenizer.encode("7").ids
    first = run.train([datum(prompt, [*answer, 2])])["metrics"]["loss"]
    run.step(1e-3)
    assert run.score([datum(prompt, [*answer, 2])])["metrics"]["loss"] < first

    run.do("export_lora", output=tmp_path / "adapter.tar.gz")
    with tarfile.open(tmp_path / "adapter.tar.gz") as archive:
        archive.extractall(tmp_path / "adapter", filter="data")
    base = AutoModelForCausalLM.from_pretrained(models.resolve(FOLDER).path, dtype=torch.float32)
    peer = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokens = prompt + replies[0]["tokens"]
    with torch.no_grad():
        theirs = torch.log_softmax(peer(torch.tensor([tokens])).logits[0], -1)[:-1]
    forced = theirs.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    assert run.logprobs(tokens) == pytest.approx(forced.tolist(), abs=1e-3)
