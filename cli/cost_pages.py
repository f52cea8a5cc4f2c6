"""docs/costs.md, and the section "Cost and memory" of each algorithm's page, from the catalogue and the formulas.

`python -m cli.cost_pages` prints the page.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from algorithms import costs, memory
from algorithms.catalogue import further_reading, profile_of, profiles, references
from algorithms.model_specs import model_spec
from algorithms.registry import ALGORITHMS
from algorithms.scaling import H100_HOURS_PER_GB200_HOUR
from cli.catalogue_facts import SETTING, curve_told, shared_facts
from cli.comparison import COMPUTE, START

EXAMPLE, RANK = "meta-llama/Llama-3.1-8B-Instruct", 32
"""What the formulas are worked out for."""
LINE = 120
NAMED = EXAMPLE.rpartition("/")[2]
PEAKS = Path(__file__).parents[1] / "benchmarks" / "plan.json"
"""Planned and measured memory, as `python -m benchmarks.plan` leaves it."""

READ = "What algorithms keep in memory and how they scale, by tinker-nomics; the formulas that plans count with."

MADE = """\
The catalogue is of papers and of other people's runs: it is where to begin, not what yours will cost. For that:
`whitney plan CONFIG` counts operations and tokens of a configuration, with FLOPs, memory, time and money; `[budget]`
ends a run that takes more; a run's report says where its own curve is heading. Side by side, with the curves as a
picture:

```sh
whitney algorithms --compare grpo cispo --target 0.45 --svg curves.svg
```"""

CURVES = """\
R(C) = R0 + (A − R0) / (1 + (Cmid / C)^B): the share solved after compute C, from R0 before training towards the
ceiling A; at Cmid it is half of the way there, and B is how steeply it rises (ScaleRL, arXiv 2510.13786). Below, R0 is
taken as {start}, which was not published; a GB200 hour counts as {h100} H100 hours. A variant has no curve of its
family's: it was not measured."""

FLOPS = """\
P parameters that a token meets (of a mixture of experts: those active), R the LoRA rank, D the model's width. An
embedding's rows are looked up and not multiplied, so P leaves it out where the output layer is another: of {named}
it is {active:.1f} of {total:.1f} billion.
Attention over the context comes on top: 4 · layers · heads · head size · context per token forward, three times as
much trained."""

LORA = """\
tinker-nomics gives LoRA training as 2P + 6P·R/D, beside the note that it is about two thirds of full fine-tuning. The
two do not agree: the formula is one third for R far below D. It leaves out the backward pass through the frozen
weights, 2P, which the adapters' gradients must go through. Plans take 4P + 6P·R/D, which is the note's two thirds."""

MEMORY = """\
The three numbers that tinker-nomics gives for PPO beside GRPO do not agree: its notes say "~50% memory savings over
PPO" and "4-8x more VRAM than GRPO+LoRA", its formulas come to {as_given:.1f} times, since they set PPO of all
parameters against GRPO with LoRA. Plans use none of the three. Here every algorithm trains adapters, `ppo_critic` too:
its critic is a second adapter on the same base. So is a reference, or a self-teacher: the base without the adapter, or
with another one, and no weights of its own. That leaves 2·P_total once, and for `ppo_critic` {ours:.2f} times what
`grpo` takes before keys, values and activations. A teacher of another model comes with 2 bytes a parameter.

Keys and values of a token: 2 · layers · KV heads · head size · 2 bytes. Activations: `algorithms/memory.py`."""

YEARS = """\
Authors, years and ids are tinker-nomics's. They do not always agree: an arXiv id begins with year and month, so those
of CISPO, "2024" there, are of June and October 2025, and that of SDPO, "2025" there, is of January 2026. arXiv
2510.13786, which it names for CISPO (Khatri et al.), is the ScaleRL paper whose curves are above."""

FORECAST = """\
A run's report fits the same curve to the run's own `reward_mean`, over the tokens it has taken (a trained one counts
twice, as with LoRA), after 8 cycles or more: where the reward is with twice the compute, and the ceiling. What the
points allow is kept, not one best curve, so each number has a 90% interval; [metrics](metrics.md#forecast) has the
keys.

`[stop] min_gain_per_1000_operations` ends a run once as much compute again would gain less mean reward than that per
1,000 billed operations; `min_gain_per_cost` the same per unit of money, by the file `budget.prices`. It is the upper
end of the interval that must be too little: a flat curve may be near its ceiling, or may not have begun to rise, and no
run that has only begun to learn is to be ended by a guess. The verdict is made of the metrics alone, and of the prices,
so a Retry comes to the same."""


def section(name: str) -> list[str]:
    """ "Cost and memory" of an algorithm's page, as markdown."""
    row = ALGORITHMS[name]
    profile = profile_of(row)
    lines = ["## Cost and memory", ""]
    if profile is None:
        return [*lines, "tinker-nomics has no row for it: [costs](../costs.md). Of your run: `whitney plan`.", ""]
    told = {**shared_facts(profile), "ScaleRL curve": curve_told(row)}
    lines += ["| | |", "|---|---|", *(f"| {label} | {text} |" for label, text in told.items()), ""]
    whose = f"By tinker-nomics, for {profile.name}" + ("" if row.profile else ", its family") + "."
    return [*lines, f"{whose} {profile.notes} More: [costs](../costs.md); of your run: `whitney plan`.", ""]


def costs_markdown() -> str:
    """The page."""
    lines = ["# Costs", "", READ, "", MADE, "", "## Algorithms", "", *_catalogue(), ""]
    lines += ["## Curves", "", CURVES.format(start=START, h100=H100_HOURS_PER_GB200_HOUR), "", *_curves(), ""]
    lines += ["## FLOPs", "", _flops_told(), "", *_flops(), "", LORA, "", "## Memory", "", *_memory(), ""]
    lines += ["## Forecast", "", FORECAST, "", "## References", "", YEARS, "", *_references(), ""]
    lines += ["## Further reading", "", *(f"- {one}: {one.note}." for one in further_reading())]
    return "\n".join(lines) + "\n"


def _catalogue() -> Iterator[str]:
    yield "| row | models in memory | critic | reward model | memory | K | G | asynchronous | algorithms here |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, row in profiles().items():
        own = [one.name for one in ALGORITHMS.values() if one.profile == name]
        family = [one.name for one in ALGORITHMS.values() if one.family == name]
        here = ", ".join(f"[{one}](algorithms/{one}.md)" for one in (*own, *family))
        cells = (
            f"**{name}**, {row.full_name}. {row.paper}",
            *shared_facts(row).values(),
            here,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "What tinker-nomics notes of them; its claims, not measurements of ours:"
    yield ""
    yield from (f"- **{name}**: {row.notes}" for name, row in profiles().items())
    yield ""
    without = " and ".join(row.name for row in ALGORITHMS.values() if profile_of(row) is None)
    yield f"tinker-nomics has no row for {without}. K: optimizer steps on a batch; G: completions of a prompt."


def _curves() -> Iterator[str]:
    heads = " | ".join(f"R({compute:,.0f} h)" for compute in COMPUTE)
    yield f"| {SETTING} | A | B | Cmid, GB200 h | Cmid, H100 h | {heads} | R(Cmid) |"
    yield "|---|---|---|---|---|" + "---|" * (len(COMPUTE) + 1)
    for name, row in profiles().items():
        if (fit := row.scaling) is None:
            continue
        curve = fit.curve(START)
        rewards = " | ".join(f"{curve.reward(compute):.3f}" for compute in (*COMPUTE, fit.midpoint))
        h100 = fit.midpoint * H100_HOURS_PER_GB200_HOUR
        yield f"| {name} | {fit.ceiling:g} | {fit.steepness:g} | {fit.midpoint:,.0f} | {h100:,.0f} | {rewards} |"


def _filled(text: str, **values: object) -> str:
    """Paragraphs with their values, in lines as long as the others of the page."""
    paragraphs = text.format(**values).split("\n\n")
    return "\n\n".join(textwrap.fill(one, LINE, break_long_words=False, break_on_hyphens=False) for one in paragraphs)


def _flops_told() -> str:
    spec = model_spec(EXAMPLE)
    return _filled(FLOPS, named=NAMED, active=spec.active / 1e9, total=spec.total / 1e9)


def _flops() -> Iterator[str]:
    spec = model_spec(EXAMPLE)
    given = costs.lora_training_flops_as_given(spec.active, rank=RANK, d_model=spec.d_model)
    full = costs.lora_training_flops(spec.active, rank=RANK, d_model=spec.d_model)
    rows = (
        ("sampled or prefilled", "2P", costs.rollout_flops(spec.active)),
        ("log-prob of a reference or teacher", "2P", costs.logprobs_flops(spec.active)),
        ("trained, all parameters", "6P", costs.training_flops(spec.active)),
        ("trained with LoRA, as tinker-nomics gives it", "2P + 6P·R/D", given),
        ("trained with LoRA, as plans count it", "4P + 6P·R/D", full),
    )
    yield f"| a token that is | operations | {NAMED}, R = {RANK} |"
    yield "|---|---|---|"
    yield from (f"| {what} | {formula} | {flops / 1e9:.1f} GFLOP |" for what, formula, flops in rows)


def _memory() -> Iterator[str]:
    total = model_spec(EXAMPLE).total
    lora, ours = memory.lora_memory(total, total).total, memory.lora_memory(total).total
    ppo = memory.ppo_memory(total, total, total, total).total
    adapter, rest = "500 MB (adapter of rank 32 and optimizer)", "keys and values + activations"
    rows = (
        (
            "GRPO with LoRA, by tinker-nomics",
            f"2·P_total + 2·P_ref + {adapter} + {rest}",
            f"{lora / 1e9:.0f} GB + {rest}",
        ),
        ("GRPO with LoRA, as plans count it", f"2·P_total + {adapter} + {rest}", f"{ours / 1e9:.0f} GB + {rest}"),
        ("PPO, all parameters, by tinker-nomics", "16·P_total + 16·P_critic + 2·P_ref + 2·P_RM", f"{ppo / 1e9:.0f} GB"),
    )
    yield f"| | bytes | {NAMED}, every model as large |"
    yield "|---|---|---|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""
    yield _filled(MEMORY, as_given=ppo / lora, ours=(ours + memory.LORA_BYTES) / ours)
    yield ""
    yield "What our own engine holds on a CPU is planned by `flows/plan/engine_memory.py`. Beside the peaks of real"
    yield "processes that train SmolLM2-135M with rank 16, as `python -m benchmarks.plan` measures them:"
    yield ""
    yield "| work of a cycle | planned, MiB | measured, MiB | planned ÷ measured |"
    yield "|---|---|---|---|"
    for name, peak in json.loads(PEAKS.read_text(encoding="utf-8")).items():
        planned, measured = peak["planned_mib"], peak["measured_mib"]
        yield f"| {name} | {planned:,} | {measured:,} | {planned / measured:.2f} |"


def _references() -> Iterator[str]:
    yield from (f"- `{key}`: {one}" for key, one in references().items())


if __name__ == "__main__":
    sys.stdout.write(costs_markdown())
