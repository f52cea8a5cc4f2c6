"""docs/algorithms: a page for each algorithm, made from its row, its maths, its loop and its options.

`python -m cli.algorithm_pages` writes the folder, and README.md's table. Nothing on a page is written twice: the
contract and the formulas are the docstring of `algorithms/NAME.py`, the loop is the source of `flows/NAME.py`, the
numbers come from the code that trains (`cli.algorithm_numbers`).
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from algorithms.registry import ALGORITHMS, Algorithm
from cli.algorithm_numbers import numbers
from cli.algorithms import OPTIONS, PAGES, losses_in_words
from cli.config_pages import default_of, own_fields, section_of, table
from flows.config import CONFIGS, FlowConfig
from tasks.glossary import GLOSSARY

ROOT = PAGES.parent.parent

READING = {
    "Maths": "In formulas",
    "Loss per provider": "What is sent",
    "Fails closed when": "What it refuses",
    "Deviates from the paper by": "Beside the paper",
    "Paper": "Where it comes from",
}
"""Parts of an algorithm's docstring, and how the page calls them. Its `Contract` opens the page."""

SAMPLED = ("reward_mean", "zero_signal_fraction", "completion_tokens_mean", "length_fraction", "kl_sampler_trainer")
CLIPPED = ("clip_fraction", "ratio_max", "kl_update")
TAUGHT = ("teacher_kl", "teacher_truncated", "completion_tokens_mean", "length_fraction")
WATCHED: dict[str, tuple[str, ...]] = {
    "sft": ("loss_per_token", "grad_norm", "dropped/<reason>"),
    "ppo": (*SAMPLED, *CLIPPED),
    "ppo_critic": (*SAMPLED, *CLIPPED, "critic_loss", "critic_explained_variance", "critic_value_mean"),
    "cispo": (*SAMPLED, *CLIPPED),
    "gspo": (*SAMPLED, *CLIPPED),
    "dppo": (*SAMPLED, *CLIPPED),
    "sapo": (*SAMPLED, "ratio_max", "kl_update"),
    "dapo": (*SAMPLED, *CLIPPED, "resample_rounds", "resample_operations", "prompts_drawn", "skipped/<reason>"),
    "reinforce_pp": (*SAMPLED, "kl_reference", "kl_reference_k3"),
    "opd": TAUGHT,
    "opsd": TAUGHT,
    "sdpo": (*TAUGHT, "reward_mean", "no_feedback/<reason>"),
    "dpo": ("margin", "accuracy", "chosen_logps", "rejected_logps", "loss"),
    "ttt": ("best_reward", "reward_max", "reward_mean", "buffer_solutions", "zero_signal_fraction"),
}
"""Numbers of `metrics.jsonl` that say how an algorithm is doing; those of SAMPLED where it has none of its own."""


EXAMPLE = "deployments/examples/rank_loss.py"
BUILD_LOSS_CONTRACT = """\
`build_loss(sample, cycle, request, ctx)` is called once a group and returns what `forward_backward` is sent,
`{data, loss_function, loss_config}`. The groups' data are joined into one request; two loss_configs are an error.

| | |
|---|---|
| `sample` | the sampler's result: `sequences` of `tokens`, `logprobs`, `stop_reason`, and the `reward` of each |
| `cycle` | its number, from 0 |
| `request` | what was sampled with: `request["prompt"]["token_ids"]` is the prompt |
| `ctx` | `client`, `run_id`, `sampler_id`, `provider`, `teacher_run_id`, `teacher_sampler_id` |

`ctx.client.run_operation(run_id, kind, payload)` and `ctx.client.sampler_operation(run_id, sampler_id, kind, payload)`
are ordered, billed and seen like every other operation; an `async` function awaits them. A group that has nothing to
teach raises `algorithms.NoGradientError`: it is counted, and the loop goes on."""


def page(name: str) -> str:
    """One algorithm's page, as markdown."""
    row = ALGORITHMS[name]
    parts = docstring_parts(name)
    lines = [f"# {row.title}", "", f"`{name}`. {parts['Contract']}", ""]
    lines += [*_facts(row), ""]
    lines += ["## In formulas", "", parts["Maths"], ""] if "Maths" in parts else []
    worked = numbers(name)
    lines += ["## In numbers", "", *worked, ""] if worked else []
    lines += ["## The contract", "", *_build_loss_contract(), ""] if name == "custom" else []
    lines += ["## The loop", "", *_loop(name), ""]
    for part, heading in READING.items():
        if part in parts and part != "Maths":
            lines += [f"## {heading}", "", parts[part], ""]
    lines += ["## Options", "", *_options(name), ""]
    lines += ["## What to watch", "", *_watched(name), ""]
    lines += ["## Run it", "", *_run(name)]
    return "\n".join(lines) + "\n"


def docstring_parts(name: str) -> dict[str, str]:
    """The parts of the docstring of `algorithms/NAME.py`, by their headings; each one paragraph.

    An own `build_loss` has no such file: its contract is the flow's.
    """
    if name == "custom":
        return {"Contract": ALGORITHMS[name].contract}
    text = importlib.import_module(f"algorithms.{name}").__doc__ or ""
    parts = re.findall(r"^([A-Z][a-z ]+): (.*(?:\n    .*)*)", text, re.MULTILINE)
    return {heading: _sentence(re.sub(r"\s*\n\s*", " ", body)) for heading, body in parts}


def _facts(row: Algorithm) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield f"| losses | {losses_in_words(row)} |"
    yield f"| operations per cycle | {row.operations_per_cycle} |"
    yield f"| operations it needs | {', '.join(row.operations)} |"
    yield f"| runs beside the policy's | {', '.join(row.extra_runs) or 'none'} |"
    yield f"| refused before any session | {'; '.join(row.refuses) or 'nothing of its own'} |"
    yield ""
    yield "P prompts (or pairs) a cycle, G completions of each, K optimizer steps on a cycle's batch. Beside these a"
    yield "run bills `save_state` at the end of a block, a frozen run's one snapshot, evaluation and export."


def _sentence(text: str) -> str:
    """A docstring's part begins in lower case behind its colon."""
    text = text.strip()
    kept = text.startswith(("`", "arXiv")) or text[1:2] in {"_", "="}
    return text if kept else text[0].upper() + text[1:]


def _build_loss_contract() -> Iterator[str]:
    """What a user's function is called with, and a whole one."""
    yield from BUILD_LOSS_CONTRACT.splitlines()
    yield from ("", f"A whole one, [{EXAMPLE}](../../{EXAMPLE}):", "")
    yield from ("```python", (ROOT / EXAMPLE).read_text(encoding="utf-8").rstrip(), "```")


def _loop(name: str) -> Iterator[str]:
    """The block's subflow as it stands in the flow's file; it is the file's last definition."""
    source = (ROOT / "flows" / f"{name}.py").read_text(encoding="utf-8")
    yield f"From [flows/{name}.py](../../flows/{name}.py); what it asks of Whitney is ordered, billed once and seen."
    yield ""
    yield "```python"
    yield source[source.index("@block_flow") :].rstrip()
    yield "```"


def options(name: str) -> dict[str, object]:
    """An algorithm's options with their defaults; None where there is no default. Tables as tables."""
    chosen: dict[str, object] = {}
    for field_name, field in {**own_fields(CONFIGS[name]), **_own_tables(name)}.items():
        section = section_of(field)
        if section is None or field_name == "rewards":
            chosen[field_name] = default_of(field)
        else:
            chosen[field_name] = {inner: default_of(its) for inner, its in section.model_fields.items()}
    return chosen


def _own_tables(name: str) -> dict[str, FieldInfo]:
    """The tables that not every algorithm has."""
    return {
        field_name: field
        for field_name, field in CONFIGS[name].model_fields.items()
        if section_of(field) is not None and field_name not in {*FlowConfig.model_fields, "rewards"}
    }


def _options(name: str) -> Iterator[str]:
    yield from table(own_fields(CONFIGS[name]))
    for field_name, field in _own_tables(name).items():
        section = section_of(field)
        assert section is not None
        yield from ("", f"In `[{field_name}]`:", "", *table(section.model_fields))
    yield ""
    yield "Model, data, sampling, rewards, optimizer, evaluation and stop rules are every algorithm's:"
    yield "[configuration](../configuration.md)."


def _watched(name: str) -> Iterator[str]:
    yield "| in metrics.jsonl | |"
    yield "|---|---|"
    for key in WATCHED.get(name, SAMPLED):
        yield f"| `{key}` | {GLOSSARY[key]} |"


def _run(name: str) -> Iterator[str]:
    config = f"deployments/configs/{name}.toml"
    yield f"[{config}](../../{config}) is one to start from; `whitney init {name}` writes every field."
    yield ""
    yield from ("```sh", f"whitney run {config}", "```", "", "From Python:", "")
    yield from ("```python", "import asyncio", "from pathlib import Path", "")
    yield from ("import flows", "from flows.load_config import load_config", "")
    yield f'_, config = load_config(Path("{config}"))'
    yield from (f"summary = asyncio.run(flows.{name}(config))", "```")


def index() -> str:
    """docs/algorithms/README.md: all of them in one table."""
    lines = [
        "# Algorithms",
        "",
        "Each is a flow of its own with its loop in sight. A page says what it is, in formulas and in worked numbers,",
        "shows the loop, lists its options. Made from the code (`make docs`). In the terminal: `whitney algorithms`.",
        "",
        *index_table(""),
        "",
        "All clip bounds are bounds of the ratio itself. Every loss is a plain sum over tokens unless `aggregation`",
        "says otherwise. A refusal comes before any session exists, and names what is missing.",
    ]
    return "\n".join(lines) + "\n"


def index_table(folder: str) -> Iterator[str]:
    """The table of algorithms; `folder` is where the pages are, seen from the page that holds the table."""
    yield "| algorithm | what makes it this one | losses | extra runs | refused |"
    yield "|---|---|---|---|---|"
    for row in ALGORITHMS.values():
        cells = (row.contract, losses_in_words(row), ", ".join(row.extra_runs), "; ".join(row.refuses))
        yield f"| [{row.name}]({folder}{row.name}.md) | {' | '.join(cells)} |"


def readme() -> str:
    """README.md with its table of algorithms made anew."""
    head, *made = index_table("docs/algorithms/")
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first = lines.index(head)
    behind = next(place for place in range(first, len(lines)) if not lines[place].startswith("|"))
    return "\n".join([*lines[:first], head, *made, *lines[behind:]]) + "\n"


def files() -> dict[Path, str]:
    """Everything that is generated: its path and its text."""
    chosen = {name: options(name) for name in ALGORITHMS}
    return {
        ROOT / "README.md": readme(),
        PAGES / "README.md": index(),
        **{PAGES / f"{name}.md": page(name) for name in ALGORITHMS},
        OPTIONS: json.dumps(chosen, indent=2, ensure_ascii=False) + "\n",
    }


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
