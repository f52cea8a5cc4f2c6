"""The tiny model: the same for everyone, and readable by the libraries that users will read it with."""

from pathlib import Path

import jinja2
import pytest
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import models


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> models.ModelFolder:
    return models.resolve("tiny", cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def tokenizer(tiny: models.ModelFolder) -> Tokenizer:
    return Tokenizer.from_file(str(tiny.tokenizer_path))


def test_it_is_the_same_bytes_wherever_it_is_built(tiny: models.ModelFolder, tmp_path: Path) -> None:
    again = models.resolve("tiny", cache_dir=tmp_path)
    for file in tiny.path.iterdir():
        assert file.read_bytes() == (again.path / file.name).read_bytes(), file.name


def test_the_special_tokens_are_where_smollm2_has_them(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_to_id(token) for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] == [0, 1, 2]
    assert tokenizer.get_vocab_size() == 64


def test_every_symbol_it_has_is_read_back_as_it_was_written(tokenizer: Tokenizer) -> None:
    text = "what is 12 + 3*(4-5)/6 = ?\n'ok', \"no\"; [a]<b>_c%d$!:."
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_capitals_are_read_as_small_letters_and_strangers_as_one_symbol(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("AbC").ids == tokenizer.encode("abc").ids
    assert tokenizer.encode("é漢").ids == [3, 3]


def test_the_chat_template_leaves_the_reply_open(tiny: models.ModelFolder, tokenizer: Tokenizer) -> None:
    assert tiny.chat_template is not None
    template = jinja2.Environment(autoescape=False).from_string(tiny.chat_template)
    text = template.render(messages=[{"role": "user", "content": "2+2"}], add_generation_prompt=True)
    assert text == "<|im_start|>u\n2+2<|im_end|>\n<|im_start|>a\n"
    assert tokenizer.encode(text).ids[0] == tokenizer.token_to_id(tiny.bos_token)


def test_transformers_reads_the_model_and_the_same_tokens(tiny: models.ModelFolder, tokenizer: Tokenizer) -> None:
    network = AutoModelForCausalLM.from_pretrained(tiny.path)
    assert network.config.vocab_size == 64
    theirs = AutoTokenizer.from_pretrained(tiny.path)
    assert theirs("<|im_start|>u\n2+2<|im_end|>")["input_ids"] == tokenizer.encode("<|im_start|>u\n2+2<|im_end|>").ids
    assert theirs.eos_token == tiny.eos_token == "<|im_end|>"
