from pathlib import Path

import pytest
import torch
from engine_harness import TestRun, engine

from gateway.providers.local.engine import Engine


@pytest.fixture
def tiny(tmp_path: Path) -> Engine:
    return engine(tmp_path)


@pytest.fixture
def run(tiny: Engine) -> TestRun:
    """A run whose B is not zero, so that every gradient has something to say."""
    made = TestRun.create(tiny)
    generator = torch.Generator().manual_seed(5)
    for name, matrix in made.parameters.named():
        if name.endswith(".B"):
            matrix.copy_(torch.randn(matrix.shape, generator=generator) * 0.1)
    made.weights_changed()
    return made
