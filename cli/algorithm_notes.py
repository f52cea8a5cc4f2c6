"""Prose of the algorithms' pages that belongs to no single function: contracts, cycles step by step, advice."""

from __future__ import annotations

import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path

from algorithms import puct
from algorithms.registry import ALGORITHMS

ROOT = Path(__file__).resolve().parent.parent
STARTERS = ROOT / "deployments" / "configs"
EXAMPLES = "deployments/examples"

RATIO_LOSSES = frozenset({"ppo", "cispo", "gspo", "dppo", "sapo"})
"""Losses that differ from the plain policy gradient only where a token's ratio has left 1."""

BUILD_LOSS = """\
`build_loss(sample, cycle, request, ctx)` is called once a group and returns what `forward_backward` is sent,
`{data, loss_function, loss_config}`. The groups' data are joined into one request; two loss_configs are an error.

| | |
|---|---|
| `sample` | the sampler's result: `sequences` of `tokens`, `logprobs`, `stop_reason`, and the `reward` of each |
| `cycle` | its number, from 0 |
| `request` | what was sampled with: `request["prompt"]["token_ids"]` is the prompt |
| `ctx` | `client`, `run_id`, `sampler_id`, `provider`, `teacher_run_id`, `teacher_sampler_id` |

A group that has nothing to teach raises `algorithms.NoGradientError`: it is counted, and the loop goes on."""

ASKING = """\
`ctx.client` has two methods. Both give the operation's result, which is ordered, billed once and seen like every other
operation's; an `async` function awaits them, a plain `def` calls them as they stand:

| call | kinds | payload | result |
|---|---|---|---|
| `sampler_operation(run_id, sampler_id, kind, payload)` | `logprobs` | `{"input": {"token_ids": […]}}`, `"topk": K` if wanted | `{"logprobs": [null, …]}`: one entry a token, none for the first; with `topk` also `"topk"` |
| | `sample` | `{"prompt": {"token_ids": […]}, "num_samples": G, "sampling_params": {"max_tokens": …}}` | `{"sequences": [{"tokens", "logprobs", "stop_reason"}, …]}` |
| `run_operation(run_id, kind, payload)` | `forward`, `forward_backward` | `{"data": […], "loss_function": …, "loss_config": {}}` | `{"metrics": {…}, "loss_outputs": [{"logprobs": {"values": […], …}}, …]}`: one entry a position of the datum |

`ctx.run_id` with `ctx.sampler_id` is the policy, `ctx.teacher_run_id` with `ctx.teacher_sampler_id` the frozen run of
`[teacher]`, both None without that table. The optimizer step and the snapshots are the loop's: those kinds are refused.
All shapes: [docs/whitney-api.md](../whitney-api.md#operations)."""  # noqa: E501 - a table's row is one line

DAPO_CYCLE = """\
1. **Draw**: one `sample` operation for each of the P prompts, G completions each; all are scored.
2. **Filter** each prompt's completions, with everything drawn for it so far: out go empty ones, ones cut off at
   `max_tokens` (`drop_overlong`) and ones without a finite reward. A group is complete with `target_group_size` left
   (by default G) whose rewards are not all equal. Rewards are judged before the soft punishment of length is added.
3. **Draw again** for what is incomplete. Too few left: as many completions of the same prompt as are missing. All
   rewards equal: the place goes to the next prompt of the data (`zero_signal = "next_prompt"`), or a whole group more
   of the same is drawn (`"same_prompt"`). A prompt that leaves no room for a reply gives its place up, too. Back to 2.
4. **Caps**: it ends when every group is complete, after `max_rounds` rounds of drawing again, or once `max_operations`
   further `sample` operations are spent.
5. **Exhausted**, groups still incomplete, `on_exhausted` decides: `"skip"` trains nothing this cycle and records it
   (`skipped/resample_exhausted`), `"train_partial"` trains on the groups that are complete, `"fail"` ends the run.
6. **Train** on all that complete groups retained, more than G where more was drawn; advantages are taken in each."""


def ratio_note(name: str) -> list[str]:
    """What a clip or a mask is worth at the starter's number of steps; nothing where the loss has none."""
    losses = ALGORITHMS[name].losses
    if RATIO_LOSSES.isdisjoint(losses):
        return []
    starter = tomllib.loads((STARTERS / f"{name}.toml").read_text(encoding="utf-8"))
    steps = starter.get("steps_per_batch", 1)
    taken = "leaves it at 1" if steps == 1 else f"takes {steps}"
    text = (
        "With `steps_per_batch = 1`, the default, every ratio is 1, but for rounding between sampler and trainer: "
        f"`{losses[0]}` is the plain policy gradient then, as `importance_sampling` is, and nothing is clipped, masked "
        f"or gated. From the second step on a batch the ratio leaves 1. The starter {taken}."
    )
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def _custom() -> list[str]:
    whole, asking = (ROOT / EXAMPLES / f"{module}.py" for module in ("rank_loss", "asking"))
    return [
        *("## The contract", "", *BUILD_LOSS.splitlines(), "", *_source("A whole one", whole), ""),
        *("## What it may ask", "", *ASKING.splitlines(), "", *_source("Each of them worked", asking), ""),
    ]


def _source(what: str, file: Path) -> list[str]:
    path = file.relative_to(ROOT).as_posix()
    return [f"{what}, [{path}](../../{path}):", "", "```python", file.read_text(encoding="utf-8").rstrip(), "```"]


def _ttt() -> list[str]:
    """The score's formula and what was chosen around it, out of the docstrings of the code that does it."""
    formula, meaning = inspect.cleandoc(puct.puct_scores.__doc__ or "").split("\n\n")[:2]
    chosen = re.findall(r"^- .*(?:\n  .*)*", puct.__doc__ or "", re.MULTILINE)
    return [
        *("## Which state is started from", ""),
        f"A cycle's groups start from the states of highest PUCT score: {formula.removesuffix(' of each state.')}.",
        "T completions were sampled in all, n of them from the state or a descendant, G make a group; c is `puct_c`.",
        *(*meaning.splitlines(), "The root is the bare problem.", ""),
        *("The paper leaves room; chosen here:", "", *"\n".join(chosen).splitlines(), ""),
    ]


SECTIONS: dict[str, Callable[[], list[str]]] = {
    "custom": _custom,
    "dapo": lambda: ["## A cycle, step by step", "", *DAPO_CYCLE.splitlines(), ""],
    "ttt": _ttt,
}
"""Sections of their own, by the algorithm whose page has them."""
