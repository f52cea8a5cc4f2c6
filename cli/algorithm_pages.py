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

from algorithms.registry import ALGORITHMS
from cli.algorithm_notes import SECTIONS, ratio_note
from cli.algorithm_numbers import numbers
from cli.algorithms import OPTIONS, PAGES, losses_in_words
from cli.config_pages import default_of, own_fields, section_of, table
from cli.cost_pages import section
from flows.config import CONFIGS, FlowConfig, KlConfig
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


def page(name: str) -> str:
    """One algorithm's page, as markdown."""
    row = ALGORITHMS[name]
    parts = docstring_parts(name)
    lines = [f"# {row.title}", "", f"`{name}`. {parts['Contract']}", ""]
    lines += [*_facts(name), ""]
    lines += ["## In formulas", "", parts["Maths"], "", *ratio_note(name)] if "Maths" in parts else []
    worked = numbers(name)
    lines += ["## In numbers", "", *worked, ""] if worked else []
    lines += SECTIONS[name]() if name in SECTIONS else []
    lines += ["## The loop", "", *_loop(name), ""]
    for part, heading in READING.items():
        if part in parts and part != "Maths":
            lines += [f"## {heading}", "", parts[part], ""]
    lines += section(name)
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


def _facts(name: str) -> Iterator[str]:
    row = ALGORITHMS[name]
    operations, needed, runs = row.operations_per_cycle, ", ".join(row.operations), ", ".join(row.extra_runs) or "none"
    if _has_kl_table(name):
        with_kl = row.with_run("reference")
        operations += f"; with `[kl]`{with_kl.operations_per_cycle.removeprefix(row.operations_per_cycle)}"
        needed += "; with `[kl]` also logprobs"
        runs += "; with `[kl]` a reference run, the frozen initial weights"
    yield "| | |"
    yield "|---|---|"
    yield f"| losses | {losses_in_words(row)} |"
    yield f"| operations per cycle | {operations} |"
    yield f"| operations it needs | {needed} |"
    yield f"| runs beside the policy's | {runs} |"
    yield f"| refused before any session | {'; '.join(row.refuses) or 'nothing of its own'} |"
    yield ""
    yield from _legend(operations)


def _legend(operations: str) -> Iterator[str]:
    """What the formula's letters stand for, and what it does not count."""
    letters = {
        "P": "P prompts a cycle",
        "G": "G completions of each",
        "K": "K optimizer steps on a cycle's batch",
    }
    meant = [meaning for letter, meaning in letters.items() if re.search(rf"\b{letter}\b", operations)]
    yield from [f"{', '.join(meant)}."] if meant else []
    snapshot = "a frozen run's one snapshot, " if "logprobs" in operations else ""
    yield f"Beside these a run bills `save_state` at the end of a block, {snapshot}evaluation and export."


def _has_kl_table(name: str) -> bool:
    """Whether a KL term against the initial weights is an option, the table `[kl]`."""
    field = CONFIGS[name].model_fields.get("kl")
    return field is not None and section_of(field) is KlConfig


def _sentence(text: str) -> str:
    """A docstring's part begins in lower case behind its colon."""
    text = text.strip()
    kept = text.startswith(("`", "arXiv")) or text[1:2] in {"_", "="}
    return text if kept else text[0].upper() + text[1:]


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
    rewards = "rewards, " if "rewards" in CONFIGS[name].model_fields else ""
    yield f"Model, data, sampling, {rewards}optimizer, evaluation and stop rules have tables of their own:"
    yield "[configuration](../configuration.md)."


def _watched(name: str) -> Iterator[str]:
    yield "| in metrics.jsonl | |"
    yield "|---|---|"
    for key in WATCHED.get(name, SAMPLED):
        yield f"| `{key}` | {GLOSSARY[key]} |"
    if _has_kl_table(name):
        yield f"| `kl_reference` | With `[kl]`: {GLOSSARY['kl_reference']} |"


def _run(name: str) -> Iterator[str]:
    config = f"deployments/configs/{name}.toml"
    choice = ["teacher.artifact_id=ARTIFACT"] if name == "opd" else []  # a teacher has no default
    yield f"[{config}](../../{config}) is one to start from; `whitney init {name}` writes every field."
    yield ""
    yield from ("```sh", " ".join(["whitney run", config, *(f"--set {one}" for one in choice)]), "```", "")
    yield from ("`ARTIFACT` is what an earlier run exported, and prints.", "") if choice else ()
    yield from ("From Python:", "")
    yield from ("```python", "import asyncio", "from pathlib import Path", "")
    yield from ("import flows", "from flows.load_config import load_config", "")
    yield f'_, config = load_config(Path("{config}"){f", {json.dumps(choice)}" if choice else ""})'
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
