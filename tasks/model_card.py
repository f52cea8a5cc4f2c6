"""The model card that goes with an adapter: `README.md` in the format of the Hugging Face Hub.

It may be published as it is: there is no key in it, no path of this machine and no example of anybody's own data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from algorithms import ALGORITHMS
from models.origin import base_on_the_hub, is_local, origin, public_name
from tasks.markdown import cell
from tasks.measured import rows
from tasks.serving import Serving, how_to_use

Record = Mapping[str, Any]


def model_card(record: Record, summary: Record, serving: Serving) -> str:
    """The card of a finished run.

    Args:
        record: its config.json.
        summary: its summary.json.
        serving: what the commands that use it are about; says whether the card is of an adapter or of merged weights.
    """
    algorithm = ALGORITHMS[record["algorithm"]]
    what = "merged weights" if serving.merged else "LoRA adapter"
    base = public_name(serving.model)
    opening = (
        f"A {what} of {base}, trained with {record['algorithm']} ({algorithm.title}) on {_data(record)}."
        if not serving.merged
        else f"{base} with a LoRA adapter merged into it, trained with {record['algorithm']} ({algorithm.title}) on "
        f"{_data(record)}."
    )
    parts = [
        _front_matter(record, serving),
        f"# {serving.name}",
        " ".join(part for part in (opening, origin(serving.model).note) if part),
        "## Measured",
        _measured(record, summary),
        how_to_use(serving),
        "## Trained",
        _table(_training(record, summary)),
        "## Made by",
        _table(_provenance(record, summary)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(record: Record, serving: Serving) -> str:
    """Values are written as JSON, which is YAML too: nothing in a name can break out of it."""
    known = origin(serving.model)
    fields = {
        "base_model": base_on_the_hub(serving.model),
        "base_model_relation": "finetune" if serving.merged else "adapter",
        "library_name": "transformers" if serving.merged else "peft",
        "pipeline_tag": "text-generation",
        "license": known.licence,
        "tags": ["lora", "whitney", record["algorithm"], "text-generation"],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value is not None]
    return "\n".join(["---", *lines, "---"])


def _measured(record: Record, summary: Record) -> str:
    after = summary.get("evaluation_after") or {}
    lines = [f"| {' | '.join(row)} |" for row in rows(summary.get("evaluation_before"), after)]
    if not lines:
        return "Nothing: the run had no held-out evaluation. How good it is, is not known."
    config = record["config"]
    rewarded = [one["function"] for one in config.get("rewards") or []]
    judge = f" What is correct was judged by `{config['evaluation'].get('reward') or (*rewarded, 'exact')[0]}`."
    samples = (
        f"{after.get('samples')} {'sample' if after.get('samples') == 1 else 'samples'} of each at temperature "
        f"{after.get('temperature')}"
        f"{', with 95% intervals' if after.get('intervals') else ''}.{judge}"
    )
    limits = (
        f"On {after.get('prompts')} prompts of the same data, which were not trained on"
        f"{f'; {samples}' if after.get('accuracy') is not None else '.'} Nothing else was measured: how it answers "
        "other questions, in other languages or to other instructions, is not known, nor whether it has become less "
        "safe than its base."
    )
    return "\n".join(["| held out | before training | after |", "|---|---|---|", *lines, "", limits])


def _training(record: Record, summary: Record) -> Iterator[tuple[str, str]]:
    config, algorithm = record["config"], ALGORITHMS[record["algorithm"]]
    yield "algorithm", f"{record['algorithm']}: {algorithm.contract} ({algorithm.paper})"
    yield "its options", _options(summary.get("options") or {})
    yield "data", _data(record)
    yield "data's fingerprint", f"`{record['data']['fingerprint']}`"
    per_cycle = {key: config[key] for key in ("groups_per_cycle", "group_size", "batch_size") if key in config}
    yield "cycles", f"{summary.get('cycles')} of {config['cycles']}; {_options(per_cycle)}"
    if stopped := summary.get("stopped"):
        yield "stopped early", str(stopped)
    if rewards := config.get("rewards"):
        yield "rewards", "; ".join(_options({key: value for key, value in one.items() if value}) for one in rewards)
    facts = summary.get("adapter_facts") or {}
    modules = f"; on {', '.join(facts['target_modules'])}" if facts.get("target_modules") else ""
    yield "LoRA", f"rank {config['lora']['rank']}, alpha {config['lora']['alpha']:g}{modules}"
    yield "optimizer", f"AdamW: {_options(config['optimizer'])}"
    yield "sampling", _options(config["sampling"])
    yield "seed", str(config["seed"])
    yield "began as", _beginning(config["model"])
    yield "operations", _options(summary.get("operations") or {})
    yield "tokens", _options(summary.get("tokens") or {})


def _provenance(record: Record, summary: Record) -> Iterator[tuple[str, str]]:
    git = record.get("git") or {}
    packages = {name: version for name, version in (record.get("packages") or {}).items() if version}
    yield "state it was exported from", f"`{summary.get('state_id')}`"
    yield "artifact", f"`{summary.get('artifact_id')}`"
    yield "SHA-256 of the adapter's weights", f"`{summary.get('adapter_sha256')}`"
    facts = summary.get("adapter_facts") or {}
    if facts:
        dtypes = ", ".join(facts["dtypes"])
        numbers = f"{facts['modules']} modules, {facts['parameters']} parameters, {dtypes}, all finite"
        yield "checked", "; ".join([numbers, *(f"not checked: {one}" for one in facts["unchecked"])])
    if git.get("commit"):
        yield "code", f"whitney-pipelines, commit `{git['commit']}`{' with changes' if git.get('dirty') else ''}"
    yield "provider", str(summary.get("provider"))
    yield "versions", f"Python {record.get('python')}; {', '.join(f'{name} {one}' for name, one in packages.items())}"


def _data(record: Record) -> str:
    """What it was trained on; of a file its name alone."""
    source = record["config"]["data"]["source"]
    return f"{_public(source)}: {record['data']['description'].removeprefix(f'{source}: ')}"


def _beginning(model: Record) -> str:
    starts = {"state": model.get("initial_state_id"), "artifact": model.get("initial_artifact_id")}
    given = [f"{kind} `{one}`" for kind, one in starts.items() if one]
    return given[0] if given else "the base model, with a fresh adapter"


def _options(options: Record) -> str:
    return ", ".join(f"{key} = {json.dumps(_public(value), ensure_ascii=False)}" for key, value in options.items())


def _public(value: Any) -> Any:
    """A setting as it may be read by anybody: a path is its last part."""
    if isinstance(value, Mapping):
        return {key: _public(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_public(one) for one in value]
    return Path(value.replace("\\", "/")).name if isinstance(value, str) and is_local(value) else value


def _table(rows: Iterator[tuple[str, str]]) -> str:
    lines = [f"| {key} | {cell(value)} |" for key, value in rows if value]
    return "\n".join(["| | |", "|---|---|", *lines])
