"""Does a student become its teacher, and does a model come to prefer what it is shown as better?

OPD: the teacher is an adapter that SFT on two-digit addition made just before. Reverse KL per token, in nats, is the
mean of four cycles at either end: it may rise at first, when the student has left its old ways and not found the new.
DPO: the margin of the held-out pairs, β·[(π_c − ref_c) − (π_r − ref_r)], is 0 before training by definition.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from benchmarks.experiments import Experiment, Finding, Stage
from benchmarks.surroundings import gateway_as_endpoint
from benchmarks.training import train, train_alone

ENDS = 4
"""Cycles at either end whose mean is compared."""

MOST_KL_LEFT = 0.25


def measure_opd(experiment: Experiment, folder: Path) -> Finding:
    """Train a teacher, then the student on the teacher's word alone; both on one gateway."""
    assert experiment.first is not None
    with gateway_as_endpoint(folder / "gateway", models=(model_of(experiment),)):
        teacher = train(experiment.first.path, experiment.first.settings, folder / "teacher")
        choice = f"teacher.artifact_id={teacher.summary['artifact_id']}"
        student = train(experiment.path, [*experiment.settings, choice], folder / "student")
    curve = student.curve("teacher_kl")
    first, last = fmean(curve[:ENDS]), fmean(curve[-ENDS:])
    return Finding(
        figures={
            "teacher accuracy": teacher.summary["accuracy_after"],
            "student accuracy before": student.summary["accuracy_before"],
            "student accuracy after": student.summary["accuracy_after"],
            "reverse KL, first cycles": first,
            "reverse KL, last cycles": last,
            "share left": last / first,
            "cycles": len(curve),
        },
        curve=curve,
        met=last < MOST_KL_LEFT * first,
    )


def measure_dpo(experiment: Experiment, folder: Path) -> Finding:
    """Margin and preference accuracy of the held-out pairs, before and after."""
    trained = train_alone(experiment.path, experiment.settings, folder)
    before, after = trained.summary["evaluation_before"], trained.summary["evaluation_after"]
    return Finding(
        figures={
            "margin before": before["margin"],
            "margin after": after["margin"],
            "preference accuracy after": after["preference_accuracy"],
            "accuracy before": before["accuracy"],
            "accuracy after": after["accuracy"],
            "cycles": trained.summary["cycles"],
        },
        curve=trained.curve("margin"),
        met=after["margin"] > before["margin"] and after["preference_accuracy"] > 0.5,
    )


def model_of(experiment: Experiment) -> str:
    """The name of the model that the experiment trains."""
    from flows.load_config import load_algorithm

    return load_algorithm(experiment.path, experiment.settings)[1].model.name


EXPERIMENTS = (
    Experiment(
        "opd",
        "distillation",
        "opd.toml",
        ("save_every=10",),
        measure_opd,
        first=Stage("sft.toml", ("cycles=24", "save_every=12")),
    ),
    Experiment(
        "dpo", "preferences", "dpo.toml", ("cycles=16", "save_every=8", "evaluation.reward=number"), measure_dpo
    ),
)
