"""Worked numbers for the algorithms' pages: each is computed here, by the code that trains with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from algorithms import (
    dpo_loss,
    entropic_advantages,
    group_mean_advantages,
    leave_one_out_baseline,
    max_relative_advantage,
    mean_normalized_advantage,
    soft_overlong_penalty,
    solve_beta,
)
from algorithms import drgrpo as drgrpo_maths
from algorithms import grpo_len_norm as len_norm_maths
from algorithms import reinforce as reinforce_maths
from algorithms import reinforce_pp as reinforce_pp_maths
from algorithms.gae import gae, terminal_rewards
from gateway.losses import LOSS_DEFAULTS
from gateway.providers.local.losses import LOSSES, TrainedTokens, evaluate

REWARDS = [1.0] * 3 + [0.0] * 5
LENGTHS = [4, 8, 16, 4, 4, 8, 8, 16]
RATIOS = (0.5, 0.9, 1.0, 1.1, 1.25, 1.5, 3.0, 6.0)
SAMPLED = -2.0
DECIMALS = 4

GROUP = "Eight completions of one prompt, three of them right (reward 1) and five wrong (0):"

Advantages = Sequence[float | None]


def numbers(name: str) -> list[str]:
    """Markdown lines of an algorithm's worked numbers; none where it has nothing but other algorithms' to show."""
    return NUMBERS[name]() if name in NUMBERS else []


def _group(*columns: tuple[str, Advantages], note: str = "") -> list[str]:
    """What a right and a wrong completion of the group are pushed by."""
    rows = [(label, advantages[0], advantages[-1]) for label, advantages in columns]
    table = _table(("", "a right one", "a wrong one"), [(label, right, wrong) for label, right, wrong in rows])
    return [GROUP, "", *table, *(["", note] if note else [])]


def _lengths(*columns: tuple[str, Advantages]) -> list[str]:
    """The same where the length of a completion counts."""
    shown = (0, 2, 3, 7)
    heads = [f"{'right' if REWARDS[i] else 'wrong'}, {LENGTHS[i]} tokens" for i in shown]
    return [GROUP, "", *_table(("", *heads), [(label, *(values[i] for i in shown)) for label, values in columns])]


def _pull(loss: str, **config: float) -> list[str]:
    """How hard a token's log-prob is pushed, by how far it has moved since it was sampled."""
    complete = {**LOSS_DEFAULTS[loss], **config}
    rows = []
    for ratio in RATIOS:
        plain = _gradient("importance_sampling", ratio, 1.0, {})
        rows.append((ratio, plain, _gradient(loss, ratio, 1.0, complete), _gradient(loss, ratio, -1.0, complete)))
    settings = ", ".join(f"{key} {value:g}" for key, value in complete.items())
    return [
        f"A token that was sampled with probability {math.exp(SAMPLED):.3f}. The ratio is its probability now over "
        f"that one; the push is −∂loss/∂log-prob. With {settings}:",
        "",
        *_table(("ratio", "importance_sampling, A = +1", f"{loss}, A = +1", f"{loss}, A = −1"), rows),
    ]


def _gradient(loss: str, ratio: float, advantage: float, config: Mapping[str, float]) -> float:
    tokens = TrainedTokens(
        logprobs=_double(SAMPLED + math.log(ratio)),
        weights=_double(1.0),
        sequence=torch.zeros(1, dtype=torch.int64),
        sampler_logprobs=_double(SAMPLED),
        advantages=_double(advantage),
    )
    return -float(evaluate(LOSSES[loss], tokens, config).gradient)


def _double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _gspo() -> list[str]:
    now, sampled = [-1.0, -1.0], [-1.2, -1.0]
    ratio = math.exp(math.fsum(a - b for a, b in zip(now, sampled, strict=True)) / len(now))
    tokens = TrainedTokens(
        _double(*now),
        _double(1.0, 1.0),
        torch.zeros(2, dtype=torch.int64),
        _double(*sampled),
        _double(1.0, 1.0),
    )
    loss = float(evaluate(LOSSES["gspo"], tokens, LOSS_DEFAULTS["gspo"]).loss.sum())
    own = ", ".join(_number(math.exp(a - b)) for a, b in zip(now, sampled, strict=True))
    return [
        f"Two tokens, log-probs {_list(now)} now, {_list(sampled)} when they were sampled, A = +1. Their "
        f"own ratios are {own}; the sequence's is {_number(ratio)} and stands for both. The loss is {_number(loss)}."
    ]


def _opd() -> list[str]:
    student, teacher = [-1.0, -0.2, -3.0], [-0.5, -0.2, -6.0]
    rows = [(i, s, t, t - s) for i, (s, t) in enumerate(zip(student, teacher, strict=True), 1)]
    return [
        "Three tokens that the student sampled. The teacher finds the first likelier, is of one mind about the second, "
        "and would hardly have said the third:",
        "",
        *_table(("token", "student's log-prob", "teacher's", "advantage"), rows),
    ]


def _dpo() -> list[str]:
    loss = dpo_loss(-10.0, -12.0, -15.0, -14.0, beta=0.1)
    return [
        "β = 0.1. The chosen answer has log-prob −10 under the policy and −12 under the initial weights, the rejected "
        f"one −15 and −14. The margin is {_number(loss.margin)}, the loss {_number(loss.loss)} (ln 2 = "
        f"{_number(math.log(2))} at the start), and each token of the chosen answer is sent with weight "
        f"{_number(-loss.gradient)}, each of the rejected one with {_number(loss.gradient)}."
    ]


def _ttt() -> list[str]:
    rewards = [1.0, 0.0, 0.0, 0.0]
    adaptive = solve_beta(rewards)
    rows = [
        (label, values[0], values[-1])
        for label, values in (
            ("β = 2", entropic_advantages(rewards, beta=2.0)),
            (f"adaptive, β = {_number(adaptive)}", entropic_advantages(rewards)),
            ("for comparison, rloo", leave_one_out_baseline(rewards)),
        )
    ]
    return ["Four attempts, one scored 1 and three 0:", "", *_table(("", "the best", "each of the others"), rows)]


def _dapo() -> list[str]:
    rows = [(n, soft_overlong_penalty(n, max_length=100, cache=20)) for n in (79, 80, 90, 100, 101)]
    return [
        *_pull("ppo", clip_high_threshold=1.28),
        "",
        "The soft punishment of length, an option (`resample.soft_overlong_cache = 20` with `max_tokens = 100`):",
        "",
        *_table(("tokens", "added to the reward"), rows),
    ]


def _ppo_critic() -> list[str]:
    values = [0.5, 0.6, 0.9]
    advantages, returns = gae(terminal_rewards(1.0, 3), values, gamma=1.0, lam=0.95)
    rows = list(zip(range(1, 4), values, advantages, returns, strict=True))
    return [
        "A right answer of three tokens (reward 1 on the last), γ = 1 and λ = 0.95, before the advantages are "
        "normalised over the batch:",
        "",
        *_table(("token", "critic's value", "advantage", "return, its target"), rows),
    ]


def _reinforce_pp() -> list[str]:
    now, reference = [-1.0, -2.0], [-1.5, -1.0]
    rows = [(kl, *reinforce_pp_maths.penalty(kl, 0.05)(now, reference)) for kl in ("k2", "k1", "k2_gradient")]
    return [
        *_group(("less a penalty per token", group_mean_advantages(REWARDS))),
        "",
        "The penalty of two tokens with β = 0.05, one likelier than under the initial weights (log-prob −1 against "
        "−1.5), one less likely (−2 against −1):",
        "",
        *_table(("kl", "first token", "second token"), rows),
    ]


def _drgrpo() -> list[str]:
    completion = drgrpo_maths.advantages(REWARDS, LENGTHS)
    constant = drgrpo_maths.advantages(REWARDS, LENGTHS, normalizer="constant", max_tokens=16)
    return _lengths(('normalizer = "completion"', completion), ('"constant", max_tokens = 16', constant))


def _reinforce() -> list[str]:
    moving = reinforce_maths.advantages(REWARDS, LENGTHS, baseline="moving", earned=[0.1, 0.2])
    return _group(
        ('baseline = "group"', reinforce_maths.advantages(REWARDS, LENGTHS)),
        ('"moving", after cycles that earned 0.1 and 0.2', moving),
    )


def _grpo() -> list[str]:
    return _group(
        ("advantage", group_mean_advantages(REWARDS, normalize_std=True)),
        ('std = "sample", std_eps = 1e-4', group_mean_advantages(REWARDS, normalize_std=True, std="sample", eps=1e-4)),
        note="Where all rewards of a group are equal nothing is sent: there is nothing to compare.",
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[float | str | None]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    cells = [[one if isinstance(one, str) else _number(one) for one in row] for row in rows]
    return lines + ["| " + " | ".join(row) + " |" for row in cells]


def _list(values: Sequence[float]) -> str:
    return " and ".join(_number(value) for value in values)


def _number(value: float | None) -> str:
    """Four decimals, without trailing zeros, with the minus that text has."""
    if value is None:
        return "–"
    shown = f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return ("0" if shown == "-0" else shown).replace("-", "−")


NUMBERS: dict[str, Callable[[], list[str]]] = {
    "grpo": _grpo,
    "grpo_nostd": lambda: _group(("advantage", group_mean_advantages(REWARDS))),
    "grpo_len_norm": lambda: _lengths(("advantage", len_norm_maths.advantages(REWARDS, LENGTHS))),
    "drgrpo": _drgrpo,
    "reinforce": _reinforce,
    "ppo": partial(_pull, "ppo"),
    "ppo_critic": _ppo_critic,
    "cispo": partial(_pull, "cispo"),
    "gspo": _gspo,
    "dppo": partial(_pull, "dppo"),
    "dro": partial(_pull, "dro"),
    "dapo": _dapo,
    "sapo": partial(_pull, "sapo"),
    "rloo": lambda: _group(
        ("advantage", leave_one_out_baseline(REWARDS)), ("for comparison, grpo_nostd", group_mean_advantages(REWARDS))
    ),
    "reinforce_pp": _reinforce_pp,
    "maxrl": lambda: _group(
        ('estimator = "beat_best"', max_relative_advantage(REWARDS)),
        ('"mean_normalized"', mean_normalized_advantage(REWARDS)),
        note="Three are right, so none has beaten the best of the others: with `beat_best` a right one gains only "
        "where it is alone.",
    ),
    "opd": _opd,
    "opsd": _opd,
    "sdpo": _opd,
    "dpo": _dpo,
    "ttt": _ttt,
}
