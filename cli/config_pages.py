"""The configuration models as text: a commented TOML to start from, and docs/configuration.md.

`python -m cli.config_pages` prints the page.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.config import FlowConfig
from flows.config.pipeline import PIPELINE, PipelineConfig, StageConfig
from flows.load_config import CONFIGS

WIDTH = 110
REQUIRED = "# Has no default: it must be set."
SHIPPED_PIPELINE = Path(__file__).resolve().parent.parent / "deployments" / "configs" / "pipeline.toml"


def starter_toml(algorithm: str) -> str:
    """A configuration with every field at its default, each explained; what has no default is commented out."""
    model = CONFIGS[algorithm]
    lines = [f"# {purpose(model)}", *_to_be_set(model), "", f"algorithm = {json.dumps(algorithm)}"]
    plain = {name: field for name, field in model.model_fields.items() if section_of(field) is None}
    lines += _settings(plain)
    # TOML has tables behind plain values; those that must be set come first among them.
    for name, field in sorted(model.model_fields.items(), key=lambda item: not item[1].is_required()):
        if (section := section_of(field)) is not None:
            lines += ["", *_section(name, field, section)]
    return "\n".join(lines) + "\n"


def starter_pipeline(file: str) -> str:
    """The shipped pipeline for a file of that name, and behind it every field that a stage can have."""
    text = SHIPPED_PIPELINE.read_text(encoding="utf-8").replace("deployments/configs/pipeline.toml", file)
    lines = ["# What a stage can say:"]
    for name, field in StageConfig.model_fields.items():
        lines += textwrap.wrap(f"{name}: {field.description}", WIDTH, initial_indent="#   ", subsequent_indent="#     ")
    return "\n".join([text, *lines]) + "\n"


def _to_be_set(model: type[BaseModel]) -> Iterator[str]:
    """What cannot be left as it is, told at the top: a table may stand a screen further down."""
    for name, field in model.model_fields.items():
        if field.is_required():
            shown = name if section_of(field) is None else _table_header(name, field)
            yield from _comment(f"Must be set below: {shown}. {field.description or ''}")


def _table_header(name: str, field: FieldInfo) -> str:
    return f"[[{name}]]" if get_origin(field.annotation) is list else f"[{name}]"


def _section(name: str, field: FieldInfo, section: type[BaseModel]) -> Iterator[str]:
    """A table with its fields; one that has no default, or is absent by default, is commented out line by line."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    first = default[0] if isinstance(default, list) and default else default
    lines = [
        _table_header(name, field),
        *_settings(section.model_fields, first if isinstance(first, BaseModel) else None),
    ]
    yield from _comment(field.description or purpose(section))
    yield from (REQUIRED,) if field.is_required() else ()
    yield from (lines if first is not None else (line if line.startswith("# ") else f"# {line}" for line in lines))


def _settings(fields: Mapping[str, FieldInfo], values: BaseModel | None = None) -> Iterator[str]:
    """A line for each field under its description; `values` are the defaults where a section has some of its own."""
    for name, field in fields.items():
        if field.description:
            yield from _comment(field.description)
        if field.is_required():
            yield from (REQUIRED, f"# {name} =")
            continue
        default = field.get_default(call_default_factory=True) if values is None else getattr(values, name)
        yield f"# {name} =" if default in (None, {}) else f"{name} = {_toml(default, lines=True)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def configuration_markdown() -> str:
    """Every field of every algorithm's configuration: type, default, meaning."""
    lines = [
        "# Configuration",
        "",
        "A configuration is a TOML file: `algorithm`, then the fields below. `whitney init ALGORITHM` writes one with",
        "every field in it; `--set a.b=c` puts a value over the file's. An unknown field is an error.",
        "",
        "## Every algorithm",
        "",
        *table(fields_without_section(FlowConfig)),
    ]
    sections: dict[str, type[BaseModel]] = {}
    for algorithm, model in CONFIGS.items():
        lines += ["", f'## `algorithm = "{algorithm}"`', "", purpose(model), "", *table(own_fields(model))]
        sections |= {name: section for name, field in model.model_fields.items() if (section := section_of(field))}
    lines += _pipeline_markdown(sections)
    for name, section in sections.items():
        users = [algorithm for algorithm, model in CONFIGS.items() if name in model.model_fields]
        lines += [
            "",
            f"## `{_header(name)}`",
            "",
            f"{purpose(section)}{_only(users)}",
            "",
            *table(section.model_fields),
        ]
    return "\n".join(lines) + "\n"


def _pipeline_markdown(sections: Collection[str]) -> list[str]:
    shared = [name for name in PipelineConfig.model_fields if name in sections]
    return [
        "",
        f'## `algorithm = "{PIPELINE}"`',
        "",
        purpose(PipelineConfig),
        "",
        *table(fields_without_section(PipelineConfig)),
        "",
        f"For the whole pipeline it has {', '.join(f'[`[{name}]`](#{name})' for name in shared)}, too, as each "
        "algorithm has.",
        "",
        "## `[[stages]]`",
        "",
        f"{purpose(StageConfig)} Only for {PIPELINE}.",
        "",
        "A field of the stage `rl` is put over the file's by `--set stages.rl.config.cycles=3`, one of all stages by",
        "`--set shared.model.name=tiny`. A path for `config` begins at the pipeline's own folder; what its file",
        "says of a run by itself, its name say, does not count.",
        "",
        *table(StageConfig.model_fields),
    ]


def fields_without_section(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model that are values, not tables."""
    return {name: field for name, field in model.model_fields.items() if section_of(field) is None}


def own_fields(model: type[FlowConfig]) -> dict[str, FieldInfo]:
    """What an algorithm has beyond `FlowConfig`, or has otherwise: its own fields, and shared ones it has redefined."""
    return {
        name: field
        for name, field in model.model_fields.items()
        if repr(field) != repr(FlowConfig.model_fields.get(name)) and (section_of(field) is None or field.description)
    }


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a table, a table that may be absent, or a list of tables."""
    kind: Any = field.annotation
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        kind = next((one for one in get_args(kind) if one is not NoneType), None)
    return kind if inspect.isclass(kind) and issubclass(kind, BaseModel) else None


def purpose(model: type[BaseModel]) -> str:
    """The first line of a model's docstring."""
    return inspect.cleandoc(model.__doc__ or "").splitlines()[0]


def table(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    """A markdown table of fields; a sentence where there are none."""
    if not fields:
        yield "Nothing beyond what every algorithm has."
        return
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        default = default_of(field)
        shown = "" if default in (None, {}) else f"`{_toml(default)}`"
        shown = "**must be set**" if field.is_required() else shown
        yield f"| `{name}` | {_type(field.annotation)} | {_cell(shown)} | {_cell(field.description or '')} |"


def default_of(field: FieldInfo) -> Any:
    """A field's default as plain data: of a table only what differs from the table's own; None where there is none."""
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return default.model_dump(mode="json", exclude_unset=True)
    if isinstance(default, list):
        return [one.model_dump(mode="json") if isinstance(one, BaseModel) else one for one in default]
    return str(default) if isinstance(default, Path) else default


def _header(name: str) -> str:
    fields = [model.model_fields[name] for model in CONFIGS.values() if name in model.model_fields]
    return _table_header(name, fields[0])


def _only(users: Iterable[str]) -> str:
    users = list(users)
    return "" if len(users) == len(CONFIGS) else f" Only for {', '.join(users)}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _toml(value: Any, *, lines: bool = False) -> str:
    """A value as TOML writes it: strings, numbers and booleans are JSON's; with `lines`, a long text on its own."""
    if lines and isinstance(value, str) and "\n" in value:
        escaped = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return f'"""\n{escaped}"""'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
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
    if origin is list:
        several = {
            "table": "tables",
            "integer": "list of integers",
            "number": "list of numbers",
            "text": "list of texts",
        }
        return several[_type(arguments[0])]
    if origin is dict or (inspect.isclass(kind) and issubclass(kind, BaseModel)):
        return "table"
    words = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path"}
    return words.get(kind, str(kind))


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())
