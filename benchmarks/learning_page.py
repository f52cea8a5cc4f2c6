"""docs/learning.md out of the records: one table a section, every row with the commit and settings it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks import addition, discovery, distillation, feedback, pipeline
from benchmarks.experiments import Experiment, Record, Records, Section

HEAD = """\
<!-- Written by `make learn` from benchmarks/learning.json: change benchmarks/learning_page.py, not this page. -->

# What the algorithms learn

Measured with SmolLM2-135M-Instruct and LoRA adapters of rank 16 on the embedded gateway, two CPU cores, every run a
flow on a Prefect server. `make learn` measures what is missing here and writes this page; each finding is kept as it is
had, so the command may be stopped and started again. `make learn ARGS=--fresh` measures everything again,
`ARGS='--only dro'` a row.

A row names its starter under `deployments/configs` and the settings that differ from it. *Commit* is where the code
stood, with a + where files differed from it. *CPU* is that of flow, gateway and engine together; the wall clock is that
of a machine that had other things to do. One seed a row, unless the row says otherwise: small differences between rows
mean nothing.
"""

Columns = Mapping[str, Callable[[Record], str]]


def _number(name: str, form: str = ".2f") -> Callable[[Record], str]:
    return lambda record: format(record.finding.figures[name], form)


def _share(name: str) -> Callable[[Record], str]:
    return _number(name, ".0%")


def _with_interval(name: str) -> Callable[[Record], str]:
    def show(record: Record) -> str:
        value, low, high = (record.finding.figures[key] for key in (name, f"{name}, low", f"{name}, high"))
        return f"{value:.0%} [{low:.0%}, {high:.0%}]"

    return show


def _minutes(*names: str) -> Callable[[Record], str]:
    return lambda record: " + ".join(f"{record.finding.figures[f'{name}, seconds'] / 60:.1f}" for name in names)


def _goal(record: Record) -> str:
    return "reached" if record.finding.met else "**missed**"


SECTIONS: dict[Section, tuple[str, str, Columns]] = {
    "addition": (
        "Addition, by a reward",
        f"""\
One-digit addition from the base model, eight prompts × eight samples a cycle, twelve tokens at most. Held-out accuracy
is the share of right replies at temperature 1 to 22 questions that training never showed in either order, four samples
each: a standard error of 3 points at 90%. The goal is from at most {addition.MOST_BEFORE:.0%} to at least
{addition.LEAST_AFTER:.0%}. Most of the gain is not arithmetic: the model learns to answer at once and to stop, where it
used to talk until the limit cut it off. Losses that look at the ratio take two steps on a batch; with one step the
ratio is 1, and they all are GRPO.""",
        {
            "before": _share("before"),
            "after": _share("after"),
            "goal": _goal,
            "cycles": _number("cycles", ".0f"),
        },
    ),
    "distillation": (
        "Distillation, by a teacher's log-probs",
        f"""\
OPD on two-digit addition, no reward. The teacher is the adapter of an SFT run just before. Reverse KL, in nats per
token, is the mean of {distillation.ENDS} cycles at either end; the goal is below {distillation.MOST_KL_LEFT:.0%} of the
start. It may rise at first: the student leaves its old ways before it finds the teacher's. Accuracy is on held-out
sums.""",
        {
            "reverse KL, first": _number("reverse KL, first cycles"),
            "last": _number("reverse KL, last cycles"),
            "left": _share("share left"),
            "goal": _goal,
            "teacher's accuracy": _share("teacher accuracy"),
            "student before": _share("student accuracy before"),
            "after": _share("student accuracy after"),
            "cycles": _number("cycles", ".0f"),
        },
    ),
    "preferences": (
        "Preferences, by pairs",
        """\
DPO on `addition-1digit-preferences`: the bare right sum before a wrong one, and before a reply that talks around it.
The margin β·[(π_c − ref_c) − (π_r − ref_r)] of the held-out pairs is 0 before training by definition; the goal is that
it rises and that more than half of the pairs come out right. Accuracy is that of sampled replies, which nothing here
rewards.""",
        {
            "margin before": _number("margin before"),
            "after": _number("margin after"),
            "pairs right": _share("preference accuracy after"),
            "goal": _goal,
            "accuracy before": _share("accuracy before"),
            "after ": _share("accuracy after"),
            "cycles": _number("cycles", ".0f"),
        },
    ),
    "discovery": (
        "Discovery, by test-time training",
        f"""\
One open problem: "{discovery.problem_text()}" The reward is the share of the
alphabet that occurs, less a hundredth for each letter beyond the fortieth; no right answer is known to the verifier.
The baseline is the best of N samples of the base model, N such that it samples at least as many tokens. Solved means
{discovery.SOLVED} or more (21 letters), which the base model does in under 5% of its samples.""",
        {
            "best, TTT": _number("best, ttt", ".3f"),
            "best of N, base": _number("best, base", ".3f"),
            "goal": _goal,
            "mean of the last cycle, TTT": _number("mean of the last cycle, ttt", ".3f"),
            "mean, base": _number("mean, base", ".3f"),
            "solved, base": _number("solved, base", ".1%"),
            "tokens, TTT": _number("tokens, ttt", ",.0f"),
            "tokens, base": _number("tokens, base", ",.0f"),
            "cycles": _number("cycles", ".0f"),
        },
    ),
    "feedback": (
        "Feedback, by self-distillation",
        f"""\
SDPO on one-digit addition, with the verifier's verdict on each attempt (`{feedback.VERDICT}`) and, as control, with a
sentence that says nothing ("{feedback.CONTROL.removeprefix("constant:")}"). The goal is that the verdict raises
held-out accuracy, and higher than the control ends. Both start from one adapter that SFT has taught to read verdicts.
Without that school SDPO does not work with a model of this size, whatever the feedback: a teacher that has the attempt
in its prompt repeats it, and likes its strangest tokens most.""",
        {
            "before": _share("before"),
            "after, verifier": _share("after, verifier"),
            "after, constant": _share("after, constant"),
            "goal": _goal,
            "cycles": _number("cycles", ".0f"),
        },
    ),
    "pipeline": (
        "One after another: SFT, RL, distillation",
        f"""\
`whitney run deployments/configs/pipeline.toml`, as it is shipped: SFT on two-digit addition, GRPO from there, and its
result distilled (OPD) into a fresh student of half the rank, on the teacher's word alone. Held-out accuracy at
temperature 1 on sums that no stage has seen in either order, four samples each, with its 95% interval. *Kept* is the
student's accuracy as a share of its teacher's. The goal: every stage adds to the one before, RL reaches at least
{pipeline.LEAST_RL:.0%}, and the student keeps at least {pipeline.LEAST_KEPT:.0%}. `python -m benchmarks.pipeline`
measures it.""",
        {
            "base": _share("base"),
            "SFT": _with_interval(pipeline.SFT),
            "RL": _with_interval(pipeline.RL),
            "student": _with_interval(pipeline.STUDENT),
            "kept": _share("kept"),
            "goal": _goal,
            "cycles": _number("cycles", ".0f"),
            "minutes": _minutes(pipeline.SFT, pipeline.RL, pipeline.STUDENT),
        },
    ),
}

CURVES: dict[Section, str] = {
    "addition": "reward by cycle",
    "distillation": "reverse KL by cycle",
    "preferences": "training margin by cycle",
    "discovery": "best so far by cycle",
    "feedback": "reward by cycle, verifier",
    "pipeline": "accuracy by stage",
}

BARS = "▁▂▃▄▅▆▇█"


def page(experiments: Sequence[Experiment], records: Records) -> str:
    """The whole page; what has no record yet is named as missing."""
    parts = [HEAD]
    for section, (title, text, columns) in SECTIONS.items():
        rows = [experiment for experiment in experiments if experiment.section == section]
        parts.append(f"## {title}\n\n{text}\n\n{_table(rows, records, columns, CURVES[section])}")
    return "\n".join(parts)


def _table(rows: Sequence[Experiment], records: Records, columns: Columns, curve: str) -> str:
    titles = ["", *columns, curve, "wall s", "CPU s", "starter and settings", "commit"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for experiment in rows:
        record = records.of(experiment)
        if record is None:
            cells = [experiment.name, "not measured yet", *[""] * (len(titles) - 2)]
        else:
            cells = [experiment.name, *(show(record) for show in columns.values()), *_origin(experiment, record)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _origin(experiment: Experiment, record: Record) -> list[str]:
    """Curve, cost, settings and commit: what every table ends with."""
    settings = ", then ".join(" ".join([one.starter, *_code(one.settings)]) for one in experiment.stages)
    return [
        sparkline(record.finding.curve),
        f"{record.wall_s:.0f}",
        f"{record.cpu_s:.0f}",
        settings,
        f"`{record.commit}`",
    ]


def _code(settings: Sequence[str]) -> list[str]:
    return [f"`{one}`" for one in settings]


def sparkline(values: Sequence[float]) -> str:
    """A bar a value, the lowest and the highest of them at the ends of the scale."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)
