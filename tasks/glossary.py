"""Every key of metrics.jsonl and evaluations.jsonl, explained once.

docs/metrics.md is these tables: `python -m tasks.glossary` prints it.
"""

from __future__ import annotations

import sys

GLOSSARY: dict[str, str] = {
    "cycle": "Number of the cycle, from 0; one cycle is one batch and `steps_per_batch` optimizer steps on it.",
    "datums": "Training examples sent in the cycle; 0 means that nothing was trained and the weights stayed.",
    "reward_mean": "Mean reward of the cycle's scored completions, weights and bonuses included.",
    "reward_std": "Population standard deviation of those rewards.",
    "reward_min": "Smallest of those rewards.",
    "reward_max": "Largest of those rewards.",
    "reward/<function>": "Mean score of one reward function, before its weight.",
    "reward_failures/<reason>": "Completions without a reward because a reward function failed, by how it did.",
    "zero_signal_fraction": "Share of groups whose rewards are all equal: they carry no gradient and are not sent.",
    "dropped/<reason>": "Completions or examples left out of training, by reason.",
    "no_feedback/<reason>": "Attempts that the source of feedback says nothing about, by reason; not trained on.",
    "skipped/<reason>": "1 where a cycle trained nothing although completions were drawn, by reason.",
    "resample_rounds": "Rounds of drawing again after the cycle's first.",
    "resample_operations": "Extra `sample` operations of those rounds; each is billed.",
    "prompts_drawn": "Prompts of the data that the cycle used up, replaced ones included.",
    "best_reward": "Largest reward of any attempt since the run began; its text is in best.json.",
    "buffer_solutions": "Different attempts that are kept to start from.",
    "prompts_skipped": "Prompts that leave no room for a reply in the model's context; never sent.",
    "completion_tokens_mean": "Mean length of the completions, in tokens, the stop token included.",
    "completion_tokens_max": "Length of the longest completion, in tokens.",
    "stop_fraction": "Share of completions that ended by themselves, with a stop token.",
    "length_fraction": "Share of completions cut off at max_tokens.",
    "kl_sampler_trainer": "k1 estimate of KL(sampler ‖ trainer), nats per token: mean of q − lp over sampled tokens; "
    "near 0 when both hold the same weights, and possibly slightly negative.",
    "kl_sampler_trainer_k3": "k3 estimate of the same divergence: mean of ratio − 1 − ln ratio; never negative.",
    "kl_update": "The same k3 before the last of several steps on a batch: how far the earlier ones moved the policy.",
    "kl_reference": "k1 estimate of KL(policy ‖ initial weights), nats per token: mean of lp − ref on sampled tokens.",
    "kl_reference_k3": "k3 estimate of the same divergence; never negative.",
    "teacher_kl": "Reverse KL(student ‖ teacher), nats per token: mean of student_lp − teacher_lp over sampled tokens; "
    "what distillation brings down.",
    "teacher_truncated": "Completions that were cut to what the teacher's context has room for.",
    "ratio_mean": "Mean of exp(lp − q), the trainer's probability of a sampled token over the sampler's; 1 on policy.",
    "ratio_max": "Largest of those ratios.",
    "entropy": "Estimate of the policy's entropy, nats per token: minus the mean log-prob of what it sampled; "
    "unbiased at temperature 1 only.",
    "loss": "The step's loss as the provider reports it, with the aggregation of the configuration in its weights.",
    "loss_per_token": "Mean negative log-likelihood of the trained tokens, nats per token.",
    "clip_fraction": "Share of trained tokens where the loss's clip or mask was in force.",
    "margin": "Mean over pairs of β·[(π_c − ref_c) − (π_r − ref_r)], with log-probs of whole answers; what DPO raises.",
    "accuracy": "Share of pairs whose margin is positive.",
    "chosen_logps": "Mean log-prob of the chosen answers under the policy, nats per answer.",
    "rejected_logps": "Mean log-prob of the rejected answers under the policy, nats per answer.",
    "critic_loss": "The critic's loss as the provider reports it, in squared reward.",
    "critic_grad_norm": "Norm of the critic's gradient before clipping.",
    "critic_clip_fraction": "Share of tokens where value_clip holds the value.",
    "critic_value_mean": "Mean value that the critic gives a token's state.",
    "critic_explained_variance": "1 − Var(return − value) / Var(return): 1 for a perfect critic, 0 for a constant.",
    "critic_<name>": "Whatever else the provider reported of the critic's step.",
    "grad_norm": "Norm of the gradient before clipping.",
    "provider/<name>": "Whatever else the provider reported of the step, under its own name.",
    "learning_rate": "Learning rate of the step; 0 when no step was taken.",
    "tokens/prefill": "Tokens billed as read: prompts of sample, once a group; sequences of logprobs and forward.",
    "tokens/sampled": "Tokens billed as drawn.",
    "tokens/trained": "Tokens billed as trained on: every input token of forward_backward's datums, prompts included.",
    "operations/<kind>": "Whitney operations of one kind (sample, forward_backward, …).",
    "seconds/<kind>": "Seconds from post to answer, added up over the operations of one kind; they overlap.",
    "seconds/cycle": "Wall-clock seconds of the whole cycle.",
}

EVALUATION_GLOSSARY: dict[str, str] = {
    "when": "before, cycle-8 (after so many cycles, with `evaluation.every`) or after training.",
    "cycle": "Cycles trained by then; 0 is before training.",
    "state_id": "The saved state that was measured; null: the weights that training began with.",
    "prompts": "Held-out prompts that replies were drawn for.",
    "skipped": "Held-out prompts that leave no room for a reply in the model's context; never sent.",
    "samples": "Completions of each prompt, at `temperature`.",
    "unscored": "Completions that could not be scored; they count as wrong.",
    "temperature": "Temperature of the completions; those of greedy_accuracy are at 0.",
    "accuracy": "Share of the completions with full reward.",
    "greedy_accuracy": "Share of the prompts whose one greedy completion has full reward (`evaluation.greedy`).",
    "pass_at": "Of each pass@k of `evaluation.pass_at`: the chance that at least one of k completions of a prompt is "
    "correct, estimated without bias from all `samples` (arXiv 2107.03374), and its mean over prompts.",
    "intervals": "Of accuracy, greedy_accuracy and each pass@k: low and high end of its 95% confidence interval.",
    "finished_fraction": "Share of the completions that ended by themselves, with a stop token.",
    "loss": "SFT: mean negative log-likelihood of the held-out answers, nats per token.",
    "margin": "DPO: mean over held-out pairs of β·[(π_c − ref_c) − (π_r − ref_r)].",
    "preference_accuracy": "DPO: share of the held-out pairs whose margin is positive.",
    "attempt": "The attempt that measured it: 1, or more after a Retry.",
}

INTERVALS = """\
An interval says how far a number may be off for having been measured on these prompts and completions only: if the same
were done with other prompts of the same kind, again and again, 95 of 100 such intervals would hold the true value. Two
adapters whose intervals overlap by much cannot be told apart by this measurement; more held-out prompts narrow it.

What is counted is prompts: completions of one prompt are alike, and ten of each tell much less than ten times as many
prompts (standard errors clustered by prompt, arXiv 2411.00640). It is a Wilson score interval of as many draws as have
that standard error, so it stays within 0 and 1 and never collapses: 24 of 24 right is [0.86, 1]. Of 100 simulated
measurements of 24 prompts, between 90 and 97 held the true value, fewest where nearly all prompts are hopeless.

`accuracy_gain` in `summary.json` is after less before with its interval, compared prompt by prompt: it can be told
apart from 0 even where the two intervals overlap."""


FORECAST = {
    "metric": "What is foretold: reward_mean.",
    "cycles": "Cycles that had been trained.",
    "interval": "The share of what is likely that `low` to `high` hold: 0.9.",
    "now": "The mean reward that the curve has come to, without the last cycle's noise.",
    "at_twice_the_compute": "The mean reward once the run has taken twice as much.",
    "gain": "What that gains.",
    "ceiling": "The mean reward that unlimited compute comes near.",
}

FORECASTS = """\
`forecast` in `summary.json` says where the reward was heading: ScaleRL's sigmoid (arXiv 2510.13786) fitted to the
run's `reward_mean` over the compute it has taken, in tokens, a trained one counted twice ([costs](costs.md)). It is
there after 8 cycles or more with a reward whose range is known, that is, of the functions that are shipped; else it is
null. Each number has its median as `value`, and `low` and `high`: a curve that is seen halfway allows many ceilings. It
supposes that the run goes on as it did, with the same data and learning rate: behind a schedule's end the next steps
are worth less."""


def forecast_markdown() -> str:
    """What a forecast is, and what its numbers are."""
    return "\n".join(
        [FORECASTS, "", "| key | meaning |", "|---|---|", *(f"| `{key}` | {text} |" for key, text in FORECAST.items())]
    )


def entry(key: str) -> str | None:
    """The glossary's name for a key of a metrics row: the key, or its family; None when there is neither."""
    if key in GLOSSARY:
        return key
    families = ((name, name.partition("<")[0]) for name in GLOSSARY if name.endswith(">"))
    return next((name for name, prefix in families if key.startswith(prefix)), None)


def explain(key: str) -> str | None:
    """The sentence for a key of a metrics row; None when there is none. An exact key wins over its family."""
    name = entry(key)
    return None if name is None else GLOSSARY[name]


def glossary_markdown() -> str:
    """The glossary as a page."""
    lines = [
        "# Metrics",
        "",
        "`metrics.jsonl` in a run folder has one row a cycle. lp: the trainer's log-prob of a token; q: the sampler's.",
        "A key is absent where an algorithm or a provider has no such number.",
        "",
        "| key | meaning |",
        "|---|---|",
        *(f"| `{key}` | {text} |" for key, text in GLOSSARY.items()),
        "",
        "## Held-out measurements",
        "",
        "`evaluations.jsonl` has one row a measurement; `summary.json` repeats them. A number is null where it was not",
        "measured.",
        "",
        "| key | meaning |",
        "|---|---|",
        *(f"| `{key}` | {text} |" for key, text in EVALUATION_GLOSSARY.items()),
        "",
        INTERVALS,
        "",
        "## Forecast",
        "",
        forecast_markdown(),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(glossary_markdown())
