"""The engine's settings, and whose death it follows."""

import subprocess
import sys

import psutil
import pytest

from gateway.providers.local import EngineOptions, LocalProvider


def test_the_engine_dies_with_a_killed_parent() -> None:
    script = """
import asyncio, time
from gateway.providers.local import EngineOptions, LocalProvider
async def main():
    provider = LocalProvider(EngineOptions(models=("tiny",)))
    await provider.start()
    print(provider.process_id, flush=True)
    time.sleep(60)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    child.wait(timeout=20)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"models": ()}, "models is empty"),
        ({"threads": 0}, "threads is 0"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens is 0, it must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        EngineOptions(**options)  # type: ignore[arg-type] # the point


def test_deterministic_mode_batches_nothing() -> None:
    assert LocalProvider().batches_samplers
    assert not LocalProvider(EngineOptions(deterministic=True)).batches_samplers
    assert EngineOptions(deterministic=True).thread_count == 1
    assert EngineOptions(threads=3).thread_count == 3
