"""Does every algorithm that learns from a reward learn to add? One task, one seed, the same batch for all of them.

Accuracy is the share of right replies at temperature 1 to the 22 held-out questions of addition-1digit, four samples
each, before and after. Ratio-clipped losses take two steps on a batch: with one the ratio is 1, and all of them are
GRPO.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiments import Experiment, Finding
from benchmarks.training import train_alone

MOST_BEFORE, LEAST_AFTER = 0.25, 0.75


def measure(experiment: Experiment, folder: Path) -> Finding:
    """Train from the base model; held-out accuracy before and after, and the share of right replies by cycle."""
    trained = train_alone(experiment.path, experiment.settings, folder)
    before, after = trained.summary["accuracy_before"], trained.summary["accuracy_after"]
    return Finding(
        figures={"before": before, "after": after, "cycles": trained.summary["cycles"]},
        curve=trained.curve("reward_mean"),
        met=before <= MOST_BEFORE and after >= LEAST_AFTER,
    )


def _row(name: str, *settings: str, starter: str | None = None, cycles: int = 12) -> Experiment:
    return Experiment(
        name,
        "addition",
        f"{starter or name}.toml",
        (f"cycles={cycles}", f"save_every={cycles // 2}", *settings),
        measure,
    )


FAST = "optimizer.learning_rate=5e-4"
"""The demo's rate, for starters that are more careful: these runs are short."""

EXPERIMENTS = (
    _row("grpo", starter="demo-grpo-addition", cycles=12),
    _row("ppo", FAST, cycles=10),
    _row("cispo", FAST, cycles=10),
    _row("dapo", FAST, cycles=10),
    _row("rloo"),
    _row("maxrl, beat_best", starter="maxrl", cycles=20),
    _row("maxrl, mean_normalized", "estimator=mean_normalized", starter="maxrl"),
    _row("dro"),
    _row("sapo", FAST, cycles=10),
    _row("grpo_nostd"),
    _row("grpo_len_norm"),
    _row("drgrpo"),
    _row("reinforce"),
    _row("reinforce_pp"),
    _row("gspo", FAST, cycles=10),
    _row("dppo", FAST, cycles=10),
    _row("ppo_critic", cycles=16),
)
