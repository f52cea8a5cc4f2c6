"""The engine as the gateway meets it: a process that can be lost, started again, and never outlives its parent."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from engine_harness import complete, datum, engine, rl_data, sampling, training

import models
from algorithms.config_json import from_config_json
from flows.plan.engine_memory import engine_memory
from flows.plan.engine_work import Held
from gateway.providers.base import ProviderLostError, RunSpec, Work
from gateway.providers.local import EngineOptions, LocalProvider

SPEC = RunSpec("run", "tiny", "policy", rank=4, alpha=8.0, seed=0)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def provider() -> AsyncIterator[LocalProvider]:
    """One process for all tests here: it takes seconds to load torch. A test that ends it starts it again."""
    made = LocalProvider(EngineOptions(models=("tiny",), deterministic=True))
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def run(provider: LocalProvider) -> AsyncIterator[LocalProvider]:
    """The process with a fresh run in it."""
    await provider.create_run(SPEC)
    yield provider
    await provider.release_run("run")


async def one(provider: LocalProvider, kind: str, payload: dict[str, object] | None = None, **work: object) -> object:
    (outcome,) = await provider.execute([Work("run", kind, complete(kind, payload or {}), **work)])  # type: ignore[arg-type] # spread
    assert outcome.error is None, outcome.error
    return outcome.result


async def test_a_whole_cycle_passes_through_the_pipe(run: LocalProvider, tmp_path: Path) -> None:
    (row,) = run.capabilities()
    assert (row.provider, row.model, row.max_sequence_tokens) == ("local", "tiny", 512)
    assert row.tokenizer_sha256 is not None
    assert await one(run, "save_weights_for_sampler", sampler_id="s") == {"sampler_id": "s"}
    await one(run, "sample", sampling([5, 6], 2), sampler_id="s")
    await one(run, "forward_backward", training(rl_data(), "ppo"))
    await one(run, "optim_step", {"optimizer": {"learning_rate": 1e-3}})
    await one(run, "save_state", output=tmp_path / "state.safetensors")
    assert await one(run, "export_lora", output=tmp_path / "adapter.tar.gz") == {"format": "peft"}
    await run.create_run(RunSpec("next", "tiny", "policy", 4, 8.0, 0, initial=tmp_path / "state.safetensors"))
    await run.release_run("run")
    (gone,) = await run.execute([Work("run", "save_weights_for_sampler", {}, sampler_id="t")])
    assert gone.error is not None
    assert gone.error.code == "unknown_run"


async def test_another_process_writes_the_same_adapter_to_the_byte(provider: LocalProvider, tmp_path: Path) -> None:
    work = [
        Work("twin", "forward_backward", complete("forward_backward", training(rl_data(), "ppo"))),
        Work("twin", "optim_step", complete("optim_step", {"optimizer": {"learning_rate": 1e-2}})),
    ]
    spec = dataclasses.replace(SPEC, run_id="twin")
    await provider.create_run(spec)
    here = engine(tmp_path)
    here.create_run(spec)
    for item in work:
        assert (await provider.execute([item])) == here.execute([item])
    await provider.execute([Work("twin", "export_lora", {}, output=tmp_path / "there.tar.gz")])
    here.execute([Work("twin", "export_lora", {}, output=tmp_path / "here.tar.gz")])
    assert (tmp_path / "there.tar.gz").read_bytes() == (tmp_path / "here.tar.gz").read_bytes()


async def test_a_small_model_s_process_holds_what_is_planned(run: LocalProvider) -> None:
    """Nearly all of it is Python and torch: what a real model adds is measured by `benchmarks.plan`, in minutes."""
    spec = from_config_json(models.resolve("tiny").config, "tiny")
    prompts = [[5 + number, *[9] * 399] for number in range(6)]
    data = [datum(prompt, [7, 8]) for prompt in prompts]
    await one(run, "forward_backward", training(data))
    await one(run, "optim_step", {"optimizer": {"learning_rate": 1e-3}})
    held = Held(rank=4, prompts=6, samples=1, prompt=400, longest_prompt=400, completion=2, sampled=False)
    planned = engine_memory(spec, held).total
    assert psutil.Process(run.process_id).memory_info().rss == pytest.approx(planned, rel=0.2)


async def test_a_killed_engine_is_a_lost_provider_and_can_be_started_again(run: LocalProvider) -> None:
    await one(run, "save_weights_for_sampler", sampler_id="s")
    long = Work("run", "sample", sampling([5, 6], 128, max_tokens=500), sampler_id="s")
    under_way = asyncio.create_task(run.execute([long]))
    await asyncio.sleep(0.05)  # so that the kill meets it at work; the outcome is the same if it does not
    assert run.process_id is not None
    os.kill(run.process_id, signal.SIGKILL)
    with pytest.raises(ProviderLostError, match=r"exit code -9"):
        await under_way
    with pytest.raises(ProviderLostError):
        await run.create_run(SPEC)
    await run.release_run("run")
    await run.start()
    await run.create_run(SPEC)
    await one(run, "forward", training(rl_data()))


async def test_a_cancelled_caller_leaves_its_answer_to_nobody(run: LocalProvider) -> None:
    await one(run, "save_weights_for_sampler", sampler_id="s")
    long = asyncio.create_task(
        run.execute([Work("run", "sample", sampling([5, 6], 64, max_tokens=100), sampler_id="s")])
    )
    await asyncio.sleep(0.01)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert await one(run, "save_weights_for_sampler", sampler_id="t") == {"sampler_id": "t"}


async def test_what_cannot_be_met_is_a_value_error_with_a_sentence(provider: LocalProvider) -> None:
    with pytest.raises(ValueError, match="model 'big' is not served; served: \\['tiny'\\]"):
        await provider.create_run(RunSpec("run", "big", "policy", 4, 8.0, 0))


async def test_a_model_that_cannot_be_had_stops_the_start_and_the_process() -> None:
    provider = LocalProvider(EngineOptions(models=("tinny",)))
    with pytest.raises(ValueError, match="Did you mean 'tiny'"):
        await provider.start()
    assert provider.process_id is None


async def test_a_bug_in_the_engine_fails_the_operation_and_nothing_else(run: LocalProvider) -> None:
    (outcome,) = await run.execute([Work("run", "no_such_kind", {})])
    assert outcome.error is not None
    assert outcome.error.code == "engine_error"
    await one(run, "forward", training(rl_data()))


async def test_stopping_ends_the_process_and_may_be_repeated() -> None:
    provider = LocalProvider(EngineOptions(models=("tiny",)))
    await provider.start()
    number = provider.process_id
    assert number is not None
    await provider.stop()
    await provider.stop()
    assert not psutil.pid_exists(number)
