"""Sampling and scoring: the same numbers whichever way they are asked for, and draws that know no neighbours."""

from pathlib import Path

import numpy as np
import pytest
import torch
from engine_harness import VOCABULARY, TestRun, engine, rl_data, sampling, some_tokens
from transformers import AutoModelForCausalLM

import models
from gateway.providers.base import Outcome, Work
from gateway.providers.local.draws import DrawSettings, choose, uniforms
from gateway.providers.local.engine import Engine

PROMPT = some_tokens(1, 9)


def sequences(outcome: Outcome) -> list[tuple[tuple[int, ...], str]]:
    assert outcome.error is None, outcome.error
    assert outcome.result is not None
    return [(tuple(one["tokens"]), one["stop_reason"]) for one in outcome.result["sequences"]]


def drawn(run: TestRun, sampler: str, prompt: list[int], num_samples: int = 1, **params: object) -> list[list[int]]:
    found = run.do("sample", sampling(prompt, num_samples, **params), sampler_id=sampler)["sequences"]
    return [one["tokens"] for one in found]


def test_sampled_logprobs_are_the_teacher_forced_ones(run: TestRun) -> None:
    sampler = run.snapshot()
    payload = sampling(PROMPT, 6, max_tokens=100, seed=3, stop_token_ids=[2, 9, 11])
    for one in run.do("sample", payload, sampler_id=sampler)["sequences"]:
        forced = run.logprobs(PROMPT + one["tokens"], sampler)[-len(one["tokens"]) :]
        assert one["logprobs"] == pytest.approx(forced, abs=1e-4)


@pytest.mark.parametrize("params", [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 2.0}])
def test_logprobs_are_at_temperature_one_however_the_draw_was_made(run: TestRun, params: dict[str, float]) -> None:
    sampler = run.snapshot()
    (one,) = run.do("sample", sampling(PROMPT, seed=3, **params), sampler_id=sampler)["sequences"]
    assert one["logprobs"] == pytest.approx(run.logprobs(PROMPT + one["tokens"], sampler)[-8:], abs=1e-4)


def test_a_draw_does_not_depend_on_what_is_sampled_beside_it(tmp_path: Path) -> None:
    shared = engine(tmp_path, deterministic=False)
    run = TestRun.create(shared)
    sampler = run.snapshot()
    payloads = [
        sampling(PROMPT, 5, seed=3, max_tokens=12, stop_token_ids=[7]),
        sampling(some_tokens(2, 30), 2, seed=4, max_tokens=3),
        sampling(PROMPT, 3, seed=5, temperature=0.7, top_p=0.9, max_tokens=20),
        sampling(PROMPT[:2], 1, seed=3, temperature=0.0),
    ]
    together = shared.execute([Work("run", "sample", payload, sampler_id=sampler) for payload in payloads])
    alone = [run.outcome("sample", payload, sampler_id=sampler) for payload in payloads]
    assert [sequences(one) for one in together] == [sequences(one) for one in alone]


def test_more_samples_begin_with_the_fewer(run: TestRun) -> None:
    sampler = run.snapshot()
    assert drawn(run, sampler, PROMPT, 8, seed=3)[:3] == drawn(run, sampler, PROMPT, 3, seed=3)


def test_a_small_cache_splits_the_work_but_not_the_draws(tmp_path: Path) -> None:
    wide, narrow = engine(tmp_path), engine(tmp_path, cache_bytes=20_000, micro_batch_tokens=8)
    answers = []
    for one in (wide, narrow):
        run = TestRun.create(one)
        answers.append(drawn(run, run.snapshot(), PROMPT, 9, seed=3))
    assert answers[0] == answers[1]


def test_rows_and_seeds_differ_from_one_another(run: TestRun) -> None:
    sampler = run.snapshot()
    rows = drawn(run, sampler, PROMPT, 8, seed=3)
    assert len({tuple(row) for row in rows}) > 4
    assert drawn(run, sampler, PROMPT, 8, seed=4) != rows
    assert drawn(run, sampler, PROMPT, 8, seed=3) == rows


def test_temperature_zero_top_one_and_a_tiny_nucleus_all_take_the_likeliest_token(run: TestRun) -> None:
    sampler = run.snapshot()
    greedy = drawn(run, sampler, PROMPT, 2, temperature=0.0)
    assert greedy[0] == greedy[1]
    assert drawn(run, sampler, PROMPT, 2, top_k=1) == greedy
    assert drawn(run, sampler, PROMPT, 2, top_p=1e-6) == greedy
    top = run.do("logprobs", {"input": {"token_ids": PROMPT + greedy[0]}, "topk": 1}, sampler_id=sampler)["topk"]
    assert [entry[0][0] for entry in top[len(PROMPT) :]] == greedy[0]


def test_a_stop_token_ends_its_row_and_is_part_of_it(run: TestRun) -> None:
    sampler = run.snapshot()
    free = drawn(run, sampler, PROMPT, 6, seed=3, max_tokens=30)
    stop = free[0][4]
    found = run.do("sample", sampling(PROMPT, 6, seed=3, max_tokens=30, stop_token_ids=[stop]), sampler_id=sampler)
    for whole, one in zip(free, found["sequences"], strict=True):
        end = whole.index(stop) + 1 if stop in whole else 30
        assert one["tokens"] == whole[:end]
        assert len(one["logprobs"]) == end
        assert one["stop_reason"] == ("stop" if stop in whole else "length")


def test_a_stop_token_as_the_last_allowed_token_counts_as_a_stop(run: TestRun) -> None:
    sampler = run.snapshot()
    (first,) = drawn(run, sampler, PROMPT, max_tokens=1)
    (one,) = run.do("sample", sampling(PROMPT, max_tokens=1, stop_token_ids=first), sampler_id=sampler)["sequences"]
    assert one["stop_reason"] == "stop"


def test_prompt_and_reply_beyond_the_context_are_refused_with_both_numbers(run: TestRun) -> None:
    sampler = run.snapshot()
    code, message = run.error("sample", sampling(some_tokens(1, 500), max_tokens=13), sampler_id=sampler)
    assert code == "context_exceeded"
    assert "500 tokens and max_tokens 13 exceed the model's context of 512" in message
    assert len(drawn(run, sampler, some_tokens(1, 500), max_tokens=12)[0]) == 12


def test_one_bad_item_does_not_spoil_its_batch(run: TestRun) -> None:
    sampler = run.snapshot()
    payloads = [sampling(PROMPT), sampling([5, 64]), sampling(PROMPT)]
    good, bad, also_good = run.engine.execute([Work("run", "sample", one, sampler_id=sampler) for one in payloads])
    assert bad.error is not None
    assert "prompt.token_ids[1] is not in the model's vocabulary" in bad.error.message
    assert sequences(good) == sequences(also_good)


def test_the_prompts_likeliest_tokens_come_with_the_samples_when_asked(run: TestRun) -> None:
    sampler = run.snapshot()
    asked = run.do("sample", sampling(PROMPT, 2, top=4), sampler_id=sampler)["topk_prompt_logprobs"]
    scored = run.do("logprobs", {"input": {"token_ids": PROMPT}, "topk": 4}, sampler_id=sampler)["topk"]
    assert asked[0] is None
    assert len(asked) == len(PROMPT)
    for ours, theirs in zip(asked[1:], scored[1:], strict=True):
        assert [token for token, _ in ours] == [token for token, _ in theirs]
        assert [value for _, value in ours] == pytest.approx([value for _, value in theirs], abs=1e-5)
    assert run.do("sample", sampling(PROMPT), sampler_id=sampler)["topk_prompt_logprobs"] is None


def test_the_likeliest_tokens_are_those_of_the_full_softmax_of_another_implementation(tiny: Engine) -> None:
    new = TestRun.create(tiny)  # changes nothing yet: the base is the model
    peer = AutoModelForCausalLM.from_pretrained(models.resolve("tiny").path).eval()
    with torch.no_grad():
        full = torch.log_softmax(peer(torch.tensor([PROMPT])).logits[0], -1)
    sampler = new.snapshot()
    scored = new.do("logprobs", {"input": {"token_ids": PROMPT}, "topk": 20}, sampler_id=sampler)
    sampled = new.do("sample", sampling(PROMPT, top=20), sampler_id=sampler)
    for found in (scored["topk"], sampled["topk_prompt_logprobs"]):
        assert found[0] is None
        assert len(found) == len(PROMPT)
        for position, entry in enumerate(found[1:]):
            tokens, logprobs = zip(*entry, strict=True)
            assert len(set(tokens)) == 20
            assert list(logprobs) == sorted(logprobs, reverse=True)
            assert logprobs == pytest.approx(full[position].topk(20).values.tolist(), abs=1e-4)
            assert logprobs == pytest.approx(full[position][list(tokens)].tolist(), abs=1e-4)


def test_more_likeliest_tokens_than_the_vocabulary_has_are_all_of_it_and_sum_to_one(run: TestRun) -> None:
    found = run.do("logprobs", {"input": {"token_ids": PROMPT}, "topk": 100}, sampler_id=run.snapshot())["topk"]
    for entry in found[1:]:
        assert sorted(token for token, _ in entry) == list(range(VOCABULARY))
        assert sum(np.exp([logprob for _, logprob in entry])) == pytest.approx(1, abs=1e-5)


def test_a_sequence_of_one_token_has_nothing_to_score(run: TestRun) -> None:
    found = run.do("logprobs", {"input": {"token_ids": [5]}, "topk": 2}, sampler_id=run.snapshot())
    assert found == {"logprobs": [None], "topk": [None]}


def test_sampling_is_billed_one_prompt_a_request_and_every_token_drawn(run: TestRun) -> None:
    sampler = run.snapshot()
    usage = run.outcome("sample", sampling(PROMPT, 4, max_tokens=5), sampler_id=sampler).usage
    assert (usage.prefill_tokens, usage.sampled_tokens) == (9, 20)
    assert run.outcome("logprobs", {"input": {"token_ids": PROMPT}}, sampler_id=sampler).usage.prefill_tokens == 9


def test_a_snapshot_stays_as_it_was_when_the_run_goes_on(run: TestRun) -> None:
    sampler = run.snapshot()
    before, drawn_before = run.logprobs(PROMPT, sampler), drawn(run, sampler, PROMPT, 3)
    run.train(rl_data(), "ppo")
    run.step(0.1)
    assert run.logprobs(PROMPT, run.snapshot()) != before
    assert run.logprobs(PROMPT, sampler) == before
    assert drawn(run, sampler, PROMPT, 3) == drawn_before


def test_snapshots_that_left_memory_come_back_bit_for_bit(tmp_path: Path) -> None:
    run = TestRun.create(engine(tmp_path, snapshots_in_memory=1))
    scored = []
    for seed in range(4):
        run.train(rl_data(seed), "importance_sampling")
        run.step(0.05)
        scored.append(run.logprobs(PROMPT, run.snapshot()))
    assert [run.logprobs(PROMPT, sampler) for sampler in run.samplers] == scored
    run.engine.release_run("run")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_snapshot_beyond_the_number_kept_says_so(tmp_path: Path) -> None:
    run = TestRun.create(engine(tmp_path, snapshots_per_run=2))
    first, *_ = [run.snapshot() for _ in range(3)]
    code, message = run.error("logprobs", {"input": {"token_ids": PROMPT}}, sampler_id=first)
    assert code == "sampler_expired"
    assert "keeps its newest 2" in message
    assert run.error("logprobs", {"input": {"token_ids": PROMPT}}, sampler_id="other")[0] == "unknown_sampler"


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.0, 0.15, 0.05])
    count = 20_000
    points = torch.from_numpy(uniforms(np.full(count, 9, np.uint64), np.arange(count, dtype=np.uint64), 0))
    logprobs = probabilities.log().expand(count, -1)
    shares = torch.bincount(choose(logprobs, DrawSettings(1.0, 1.0, 0), points), minlength=5) / count
    torch.testing.assert_close(shares, probabilities, rtol=0, atol=0.01)
    assert shares[2] == 0
    kept = torch.bincount(choose(logprobs, DrawSettings(1.0, 0.7, 0), points), minlength=5) / count
    torch.testing.assert_close(kept, torch.tensor([0.625, 0.375, 0, 0, 0]), rtol=0, atol=0.01)
    three = torch.bincount(choose(logprobs, DrawSettings(0.5, 1.0, 3), points), minlength=5) / count
    squares = torch.tensor([0.25, 0.09, 0, 0.0225, 0])
    torch.testing.assert_close(three, squares / squares.sum(), rtol=0, atol=0.01)


@pytest.mark.parametrize("point", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_never_draw_a_token_without_mass(point: float) -> None:
    logprobs = torch.tensor([[float("-inf"), -0.7, -0.7, float("-inf")]])
    chosen = choose(logprobs, DrawSettings(1.0, 1.0, 0), torch.tensor([point], dtype=torch.float64))
    assert chosen.item() == (1 if point == 0 else 2)


def test_uniforms_are_spread_and_change_with_seed_row_and_step() -> None:
    rows = np.arange(50_000, dtype=np.uint64)
    first = uniforms(np.zeros_like(rows), rows, 0)
    assert 0 <= first.min() < first.max() < 1
    assert abs(first.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.02
    for other in (uniforms(np.zeros_like(rows), rows, 1), uniforms(np.ones_like(rows), rows, 0)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.02
