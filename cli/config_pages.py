"""The configuration models as text: a commented TOML to start from, and docs/configuration.md.

`python -m cli.config_pages` prints the page.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.load_config import CONFIGS

WIDTH = 110


def starter_toml(algorithm: str) -> str:
    """A configuration with every field at its default, each explained; what has no default is commented out."""
    model = CONFIGS[algorithm]
    lines = [f"# {_purpose(model)}", "", f"algorithm = {json.dumps(algorithm)}"]
    plain = {name: field for name, field in model.model_fields.items() if section_of(field) is None}
    lines += _settings(plain, model)
    for name, field in model.model_fields.items():
        if (section := section_of(field)) is not None:
            header = f"[[{name}]]" if get_origin(field.annotation) is list else f"[{name}]"
            lines += ["", f"# {_purpose(section)}", header, *_settings(section.model_fields, section)]
    return "\n".join(lines) + "\n"


def configuration_markdown() -> str:
    """Every field of every algorithm's configuration: type, default, meaning."""
    lines = [
        "# Configuration",
        "",
        "A configuration is a TOML file: `algorithm`, then the fields below. `whitney init ALGORITHM` writes one with",
        "every field in it; `--set a.b=c` puts a value over the file's. An unknown field is an error.",
    ]
    shared: dict[str, type[BaseModel]] = {}
    for algorithm, model in CONFIGS.items():
        own = {name: field for name, field in model.model_fields.items() if section_of(field) is None}
        lines += ["", f'## `algorithm = "{algorithm}"`', "", _purpose(model), "", *_table(own)]
        shared |= {name: section for name, field in model.model_fields.items() if (section := section_of(field))}
    for name, section in shared.items():
        users = [algorithm for algorithm, model in CONFIGS.items() if name in model.model_fields]
        only = "" if len(users) == len(CONFIGS) else f" ({', '.join(users)} only)"
        header = f"[[{name}]]" if _is_list(name) else f"[{name}]"
        lines += ["", f"## `{header}`{only}", "", _purpose(section), "", *_table(section.model_fields)]
    return "\n".join(lines) + "\n"


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a table or a list of tables."""
    kind: Any = field.annotation
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    return kind if inspect.isclass(kind) and issubclass(kind, BaseModel) else None


def _is_list(name: str) -> bool:
    fields = [model.model_fields[name] for model in CONFIGS.values() if name in model.model_fields]
    return get_origin(fields[0].annotation) is list


def _purpose(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").splitlines()[0]


def _settings(fields: dict[str, FieldInfo], model: type[BaseModel]) -> Iterator[str]:
    for name, field in fields.items():
        if field.description:
            yield from textwrap.wrap(field.description, WIDTH, initial_indent="# ", subsequent_indent="# ")
        default = field.get_default(call_default_factory=True)
        yield f"# {name} =" if default in (None, {}) else f"{name} = {_toml(default)}"


def _table(fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, {}) else f"`{_toml(default)}`"
        yield f"| `{name}` | {_type(field.annotation)} | {shown} | {field.description or ''} |"


def _toml(value: Any) -> str:
    """A value as TOML writes it: strings, numbers and booleans are JSON's."""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _type(kind: Any) -> str:
    """A type in a user's words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(one) for one in arguments if one is not NoneType))
    if origin is dict:
        return "table"
    words = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path"}
    return words.get(kind, str(kind))


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())
