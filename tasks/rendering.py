"""From conversations to token ids and back, by the model's own chat template and tokenizer.

Whitney speaks token ids, so the text's shape is settled here. The rule that everything hangs on: what is trained is
what is sampled. A completion is trained behind exactly the tokens the model was prompted with, and it ends with the
token that ends a sampled one; `Renderer.check` proves both for a conversation before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from models import ModelFolder
from tasks.examples import Example, Message, user

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML and nothing else: no default system prompt, which would cost every prompt some twenty tokens."""

TEMPLATES = {"chatml": CHATML}

_PROBE = (user("1"), "2")


class RenderingError(ValueError):
    """A chat template or a text that cannot be trained and sampled faithfully; the message says where."""


class Renderer:
    """A tokenizer and a chat template.

    Args:
        model: the folder to read both from.
        template: instead of the model's own: "chatml", the path of a Jinja file, or the template itself.

    Raises:
        RenderingError: no template, a template that does not parse, or one that does not end the assistant's turn.
    """

    __slots__ = (
        "_opening",
        "_special",
        "_template",
        "_tokenizer",
        "_variables",
        "model_name",
        "stop_token_ids",
        "template",
        "template_sha256",
        "tokenizer_sha256",
    )

    def __init__(self, model: ModelFolder, template: str | Path | None = None) -> None:
        self.template = _template_source(model, template)
        self.model_name = model.name
        self.tokenizer_sha256 = model.tokenizer_sha256
        self.template_sha256 = hashlib.sha256(self.template.encode()).hexdigest()
        self._template = _compile(self.template)
        self._tokenizer = Tokenizer.from_file(str(model.tokenizer_path))
        # A tokenizer.json may ask for truncation or padding; either would silently change what is trained.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._special = {
            token.content: index for index, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        }
        named = {"bos_token": model.bos_token, "eos_token": model.eos_token}
        self._variables = {name: token for name, token in named.items() if token is not None}
        end_of_text = self._special.get(model.eos_token or "")
        self._opening = self._supplied_opening()
        turn_end = self._turn_end()
        self.stop_token_ids: list[int] = [turn_end, *([end_of_text] if end_of_text not in {None, turn_end} else [])]
        self.check()

    @property
    def stop_token_id(self) -> int:
        """The token that ends the assistant's turn in the template: the one that is trained."""
        return self.stop_token_ids[0]

    def prompt_tokens(self, item: Example | Sequence[Message]) -> list[int]:
        """The conversation, and the opening of the assistant's turn, as token ids.

        Raises:
            RenderingError: the template fails, a message holds a special token, or the text begins with two BOS.
        """
        messages = _messages(item)
        for place, message in enumerate(messages):
            self._refuse_special(f"messages[{place}]", message["content"])
        tokens = self._encode(self._render(messages, add_generation_prompt=True))
        if not tokens:
            raise RenderingError("the chat template renders this conversation to nothing: a prompt needs a token")
        bos = self._special.get(self._variables.get("bos_token", ""))
        if bos is not None and tokens[:2] == [bos, bos]:
            raise RenderingError("the prompt begins with two BOS tokens: take one out of the chat template")
        return tokens

    def completion_tokens(self, text: str) -> list[int]:
        """A reply as it is trained: its tokens, then the token that ends the turn.

        Where the template's generation prompt opens the reply itself, with "<think>\\n" say, that opening is no part of
        a sampled completion, and none of a trained one: it is taken off a reply that begins with it.

        Raises:
            RenderingError: the reply holds a special token of its own.
        """
        rest = self._after_opening(text)
        self._refuse_special("the reply", rest)
        return [*self._encode(rest), self.stop_token_id]

    def decode(self, tokens: Sequence[int], *, skip_special: bool = True) -> str:
        """Token ids as text, without special tokens unless asked for."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special))

    def special_token_in(self, text: str) -> str | None:
        """A special token that a text spells out: it would be read as the token itself, and could end the turn."""
        return next((token for token in self._special if token in text), None)

    def check_text(self, item: Example) -> None:
        """Look for special tokens spelt out in an example; quick enough for every example there is.

        Raises:
            RenderingError: one is there; it would end the turn, or open another.
        """
        for place, message in enumerate(item.messages):
            self._refuse_special(f"example {item.id}, messages[{place}]", message["content"])
        for reply in item.replies:
            self._refuse_special(f"example {item.id}, a reply", self._after_opening(reply))

    def check(self, item: Example | None = None) -> None:
        """Prove for a conversation and each of its replies (or a probe) that training and sampling see the same tokens.

        Raises:
            RenderingError: the finished conversation does not start with the prompt's tokens, its reply is tokenized
                otherwise than `completion_tokens` does, or something other than white space follows the turn's end.
        """
        if item is None or not item.replies:
            self._check_reply("the chat template" if item is None else f"example {item.id}", *_PROBE)
        else:
            for reply in item.replies:
                self._check_reply(f"example {item.id}", item.messages, reply)

    def _check_reply(self, where: str, messages: Sequence[Message], answer: str) -> None:
        prompt, completion = self.prompt_tokens(messages), self.completion_tokens(answer)
        full = self._finished(messages, answer)
        place = _parting(prompt, full)
        if place is not None or len(full) < len(prompt):
            raise RenderingError(
                f"{where}: the finished conversation does not begin with its prompt (they part at token {place} of "
                f"{len(prompt)}): the template must render `add_generation_prompt` and an assistant message alike"
            )
        rest = full[len(prompt) :]
        if rest[: len(completion)] != completion:
            raise RenderingError(
                f"{where}: the reply has other tokens within the conversation than by itself: "
                "a template that trims or adds white space around it, or a tokenizer that merges across its border"
            )
        if self.decode(rest[len(completion) :], skip_special=False).strip():
            raise RenderingError(f"{where}: text follows the token that ends the assistant's turn")

    def _supplied_opening(self) -> str:
        """What the generation prompt says of the reply itself; "" for most templates.

        It is what stands in the prompt where, in the finished conversation, the reply begins.
        """
        messages, answer = _PROBE
        prompt = self._render(messages, add_generation_prompt=True)
        full = self._render([*messages, _reply(answer)], add_generation_prompt=False)
        place = _parting(prompt, full)
        return "" if place is None or not full.startswith(answer, place) else prompt[place:]

    def _after_opening(self, text: str) -> str:
        """What is left of a reply for the model to say, once the generation prompt has supplied the opening."""
        tag, reply = self._opening.strip(), text.lstrip()
        if not tag or not reply.startswith(tag):
            return text
        return text.removeprefix(self._opening) if text.startswith(self._opening) else reply.removeprefix(tag).lstrip()

    def _turn_end(self) -> int:
        messages, answer = _PROBE
        after = self._finished(messages, answer)[len(self.prompt_tokens(messages)) :]
        special = set(self._special.values())
        end = next((token for token in after if token in special), None)
        if end is None:
            raise RenderingError(
                "the chat template does not end the assistant's turn with a special token of the tokenizer: "
                "a model trained on it would never learn to stop"
            )
        return end

    def _finished(self, messages: Sequence[Message], answer: str) -> list[int]:
        reply = _reply(self._opening + self._after_opening(answer))
        return self._encode(self._render([*messages, reply], add_generation_prompt=False))

    def _encode(self, text: str) -> list[int]:
        # The template writes BOS and EOS itself; the tokenizer's post-processor would write them a second time.
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                **self._variables,
            )
        except Exception as error:  # a template is a program: it may raise anything
            lines = [
                frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"
            ]
            where = f"line {lines[-1]}" if lines else "an unknown line"
            raise RenderingError(f"the chat template fails at {where}: {type(error).__name__}: {error}") from error

    def _refuse_special(self, where: str, text: str) -> None:
        found = self.special_token_in(text)
        if found is not None:
            raise RenderingError(f"{where} holds the special token {found!r} as text: take it out of the data")


def _reply(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _parting(one: Sequence[object], other: Sequence[object]) -> int | None:
    """The first place where two texts, or two lists of tokens, differ; None where one begins with the other."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


def _messages(item: Example | Sequence[Message]) -> Sequence[Message]:
    return item.messages if isinstance(item, Example) else item


def _template_source(model: ModelFolder, template: str | Path | None) -> str:
    if template is None:
        if model.chat_template is None:
            raise RenderingError(f"model {model.name!r} has no chat template: set model.chat_template, to 'chatml' say")
        return model.chat_template
    text = str(template)
    if text in TEMPLATES:
        return TEMPLATES[text]
    if isinstance(template, str) and ("{{" in text or "{%" in text):
        return text
    try:
        return Path(template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RenderingError(
            f"chat template {text!r} is neither {' nor '.join(TEMPLATES)} nor a readable file: {error}"
        ) from error


def _compile(source: str) -> jinja2.Template:
    """Compile as Hugging Face does, so that a template means here what it means there."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise RenderingError(f"the chat template does not parse, line {error.lineno}: {error.message}") from error


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
