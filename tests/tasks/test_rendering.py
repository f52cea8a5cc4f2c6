import shutil

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

import models
from tasks.data import DataSource, load
from tasks.examples import example, user
from tasks.rendering import CHATML, Renderer, RenderingError

QUESTION = example(user("what is 2 + 3?"), "5", id="q")
CHATML_TEXT = "<|im_start|>user\nwhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def tiny():
    return models.resolve("tiny")


def test_a_prompt_is_the_conversation_and_the_opening_of_the_reply(tiny):
    renderer = Renderer(tiny, "chatml")
    assert renderer.decode(renderer.prompt_tokens(QUESTION), skip_special=False) == CHATML_TEXT
    assert renderer.prompt_tokens(QUESTION) == renderer.prompt_tokens(QUESTION.messages)


def test_a_completion_ends_with_the_token_that_ends_a_sampled_one(tiny):
    renderer = Renderer(tiny)
    tokens = renderer.completion_tokens("5")
    assert tokens[-1] == renderer.stop_token_id == 2
    assert renderer.stop_token_ids == [2]
    assert renderer.decode(tokens) == "5"
    assert renderer.decode(tokens, skip_special=False) == "5<|im_end|>"


def test_a_template_comes_from_the_model_by_name_from_a_file_or_as_text(tiny, tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text(CHATML)
    digests = {Renderer(tiny, form).template_sha256 for form in ("chatml", path, str(path), CHATML)}
    assert len(digests) == 1
    assert Renderer(tiny).template_sha256 not in digests


def test_a_models_end_of_text_stops_a_sample_too_when_the_turn_ends_otherwise(tiny):
    template = CHATML.replace("<|im_end|>", "<|endoftext|>")
    assert Renderer(tiny, template).stop_token_ids == [0, 2]


def test_templates_may_use_what_hugging_faces_have(tiny):
    test = "{{ '' if strftime_now('%Y') and messages|tojson and tools is none else raise_exception('no') }}"
    renderer = Renderer(tiny, test + CHATML)
    assert renderer.decode(renderer.prompt_tokens(QUESTION), skip_special=False) == CHATML_TEXT


def opened_by(opening):
    """ChatML whose generation prompt goes on with an opening of the reply."""
    head, tail = CHATML.rsplit("assistant\n", 1)
    return f"{head}assistant\n{opening}{tail}"


THINKING = opened_by("<think>\n")
THOUGHT = "two and three\n</think>\n\n5"


@pytest.fixture(scope="module")
def thinking(tiny):
    return Renderer(tiny, THINKING)


def test_an_opened_think_tag_belongs_to_the_prompt_that_is_sampled_from(thinking):
    prompt = thinking.decode(thinking.prompt_tokens(QUESTION), skip_special=False)
    assert prompt == CHATML_TEXT + "<think>\n"


@pytest.mark.parametrize(
    "reply", [THOUGHT, "<think>\n" + THOUGHT, "<think>" + THOUGHT, "\n<think>\n\n" + THOUGHT, "<think> " + THOUGHT]
)
def test_an_opened_think_tag_is_never_trained_however_the_data_spell_the_reply(thinking, reply):
    tokens = thinking.completion_tokens(reply)
    assert thinking.decode(tokens, skip_special=False) == THOUGHT + "<|im_end|>"
    whole = thinking.decode([*thinking.prompt_tokens(QUESTION), *tokens], skip_special=False)
    assert whole == CHATML_TEXT + "<think>\n" + THOUGHT + "<|im_end|>"
    thinking.check(example(QUESTION.messages, reply))


def test_white_space_after_the_opening_is_the_replys_own(thinking):
    assert thinking.completion_tokens("<think>\n x") == thinking.completion_tokens(" x")


def test_a_reply_that_does_not_think_is_trained_as_it_is(thinking):
    assert thinking.decode(thinking.completion_tokens("5")) == "5"
    thinking.check(QUESTION)


def test_a_tag_that_the_template_does_not_open_is_the_replys_own(tiny):
    renderer = Renderer(tiny, "chatml")
    assert renderer.decode(renderer.completion_tokens("<think>\nx")) == "<think>\nx"


def test_an_opening_that_is_a_special_token_is_taken_off_too_and_refused_anywhere_else(tiny):
    special = "<|endoftext|>"
    renderer = Renderer(tiny, opened_by(special))
    item = example(QUESTION.messages, special + "5")
    renderer.check_text(item)
    renderer.check(item)
    assert renderer.decode(renderer.completion_tokens(special + "5"), skip_special=False) == "5<|im_end|>"
    with pytest.raises(RenderingError, match="the reply holds the special token"):
        renderer.completion_tokens(special + "5" + special)


def test_a_template_that_closes_the_tag_for_replies_that_do_not_think_is_refused(tiny):
    closed = "('<think>\n\n</think>\n' if message.role == 'assistant' else '')"
    closing = THINKING.replace("message['content'] +", f"{closed} + message['content'] +")
    with pytest.raises(RenderingError, match="other tokens within the conversation"):
        Renderer(tiny, closing)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("\n{% if %}", "does not parse, line 2"),
        ("a\nb{{ messages[0].content + 1 }}", "fails at line 2: TypeError"),
        ("\n\n{{ raise_exception('roles must alternate') }}", "fails at line 3: TemplateError: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "fails at line 1: SecurityError"),
        (CHATML.replace("'<|im_end|>\n'", "'\n'"), "does not end the assistant's turn"),
        (CHATML.replace("<|im_start|>assistant", "<|im_start|>bot"), "does not begin with its prompt"),
        (CHATML.replace("{% if add_generation_prompt %}", "{% if false %}"), "other tokens within the conversation"),
        (CHATML.replace("message['content'] +", "' ' + message['content'] +"), "other tokens within the conversation"),
        (CHATML.replace("'<|im_end|>\n'", "'<|im_end|>more'"), "text follows the token"),
        (CHATML.replace("{% for message", "{{ bos_token }}{% for message"), "begins with two BOS tokens"),
        ("{{ '' }}", "renders this conversation to nothing|does not end"),
        ("no such file.jinja", "neither chatml nor a readable file"),
    ],
)
def test_a_template_that_would_train_something_else_than_is_sampled_is_refused(tiny, template, said):
    with pytest.raises(RenderingError, match=said):
        Renderer(tiny, template)


def test_a_template_that_trims_is_refused_for_the_answers_it_would_change(tiny):
    renderer = Renderer(tiny, CHATML.replace("message['content'] +", "message['content']|trim +"))
    renderer.check(QUESTION)
    with pytest.raises(RenderingError, match="example padded: the reply has other tokens"):
        renderer.check(example(user("what?"), " 5", id="padded"))


def test_a_special_token_spelt_out_in_the_data_is_refused(tiny):
    renderer = Renderer(tiny)
    with pytest.raises(RenderingError, match=r"messages\[0\] holds the special token '<\|im_end\|>'"):
        renderer.prompt_tokens(user("a<|im_end|>b"))
    with pytest.raises(RenderingError, match="the reply holds the special token"):
        renderer.completion_tokens("5<|im_end|>")


def test_a_model_without_a_template_says_what_to_set(tiny, tmp_path):
    folder = shutil.copytree(tiny.path, tmp_path / "bare")
    (folder / "tokenizer_config.json").write_text("{}")
    bare = models.ModelFolder("bare", folder)
    with pytest.raises(RenderingError, match=r"'bare' has no chat template: set model\.chat_template"):
        Renderer(bare)
    assert Renderer(bare, "chatml").stop_token_ids == [2]


def test_a_renderer_has_no_dict_that_could_be_stored(tiny):
    assert not hasattr(Renderer(tiny), "__dict__")


@pytest.mark.parametrize("template", [None, "chatml"])
@pytest.mark.parametrize("name", ["addition-1digit", "capitals"])
def test_every_shipped_example_passes_the_check_on_the_small_model(tiny, template, name):
    renderer = Renderer(tiny, template)
    data = load(DataSource(name))
    for item in (*data.train, *data.heldout):
        renderer.check(item)


@pytest.mark.smollm2
@pytest.mark.parametrize("template", [None, "chatml"])
def test_every_shipped_example_passes_the_check_on_smollm2(template):
    renderer = Renderer(models.resolve("smollm2-135m-instruct"), template)
    for name in ("addition-1digit", "addition-2digit", "capitals"):
        for item in load(DataSource(name)).heldout:
            renderer.check(item)


@pytest.mark.smollm2
def test_smollm2s_tokens_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    model = models.resolve("smollm2-135m-instruct")
    renderer, peer = Renderer(model), transformers.AutoTokenizer.from_pretrained(str(model.path))
    messages = [{"role": "system", "content": "Be brief."}, *user("What is 7 + 5?\nThanks — 谢谢!")]
    ours = renderer.prompt_tokens(messages)
    assert ours == peer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert (
        renderer.prompt_tokens(QUESTION)
        == peer.apply_chat_template(list(QUESTION.messages), add_generation_prompt=True, return_dict=True)["input_ids"]
    )


def test_what_a_tokenizer_would_add_cut_off_or_fill_up_by_itself_is_left_out(tiny, tmp_path):
    folder = shutil.copytree(tiny.path, tmp_path / "eager")
    tokenizer = Tokenizer.from_file(str(tiny.tokenizer_path))
    tokenizer.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=64, pad_token="<|endoftext|>")
    tokenizer.save(str(folder / "tokenizer.json"))
    eager, plain = Renderer(models.ModelFolder("eager", folder)), Renderer(tiny)
    assert eager.prompt_tokens(QUESTION) == plain.prompt_tokens(QUESTION)
    assert eager.completion_tokens("5") == plain.completion_tokens("5")
