"""What the engine keeps besides runs: merged weights of adapters in use, and sampler snapshots."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gateway.providers.files import naming
from gateway.providers.local.base_weights import BaseWeights, LayerWeights
from gateway.providers.local.checkpoint import load_weights, save_weights
from gateway.providers.local.errors import EngineError
from gateway.providers.local.forward import Network
from gateway.providers.local.lora import LoraLayout, LoraTensors, merge


class MergedWeights:
    """Merged weights of the few runs in use, the least recently used given up first.

    A merge costs a tenth of a second, the memory most of a base model. A run holds at most one copy, written over when
    its weights change; an adapter that changes nothing is served by the base itself.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._hot: OrderedDict[str, tuple[int, BaseWeights, list[LayerWeights]]] = OrderedDict()

    def network(self, run_id: str, version: int, base: BaseWeights, lora: LoraTensors) -> Network:
        """The network of a run's weights at `version`."""
        if run_id in self._hot and self._hot[run_id][0] == version:
            self._hot.move_to_end(run_id)
            return Network(base, self._hot[run_id][2])
        if lora.changes_nothing():
            return Network(base, base.layers)
        buffer = self._buffer_for(run_id, base)
        merged = merge(base.layers, lora, into=buffer)
        self._hot[run_id] = (version, base, merged)
        return Network(base, merged)

    def _buffer_for(self, run_id: str, base: BaseWeights) -> list[LayerWeights] | None:
        """Memory to write over: the run's own older copy, else the one that gives way."""
        given_up = self._hot.pop(run_id, None)
        if given_up is None and len(self._hot) >= self._capacity:
            _, given_up = self._hot.popitem(last=False)
        return given_up[2] if given_up and given_up[1] is base else None

    def forget(self, run_id: str) -> None:
        """Drop a run's copy."""
        self._hot.pop(run_id, None)


@dataclass
class Snapshot:
    """Weights as they were; `version` is the run's at that time. Exactly one of `flat` and `file` is set."""

    run_id: str
    version: int
    layout: LoraLayout
    flat: Tensor | None
    file: Path | None = None


class Snapshots:
    """Immutable sampler weights by id: the newest in memory, older ones in a scratch folder, the oldest of all gone."""

    def __init__(self, scratch: Path, *, in_memory: int, per_run: int) -> None:
        self._scratch = scratch
        self._in_memory = in_memory
        self._per_run = per_run
        self._file_numbers = itertools.count()
        self._kept: OrderedDict[str, Snapshot] = OrderedDict()
        self._expired: dict[str, str] = {}
        """Sampler id → run id, of snapshots that are gone: their users deserve a better word than "unknown"."""

    def add(self, sampler_id: str, run_id: str, version: int, lora: LoraTensors) -> None:
        """Keep a copy of `lora` under `sampler_id`."""
        self._kept[sampler_id] = Snapshot(run_id, version, lora.layout, lora.flat.clone())
        of_run = [known for known, snapshot in self._kept.items() if snapshot.run_id == run_id]
        for oldest in of_run[: -self._per_run]:
            self._drop(oldest)
            self._expired[oldest] = run_id
        self._make_room()

    def get(self, run_id: str, sampler_id: str) -> tuple[int, LoraTensors]:
        """Version and weights of a run's snapshot.

        Raises:
            EngineError: `unknown_sampler` or `sampler_expired`.
        """
        snapshot = self._kept.get(sampler_id)
        if snapshot is None or snapshot.run_id != run_id:
            if self._expired.get(sampler_id) == run_id:
                raise EngineError(
                    "sampler_expired", f"sampler {sampler_id} is gone: a run keeps its newest {self._per_run} snapshots"
                )
            raise EngineError("unknown_sampler", f"run {run_id} has no sampler {sampler_id}")
        if snapshot.flat is None:
            assert snapshot.file is not None
            snapshot.flat = load_weights(snapshot.file)
        self._kept.move_to_end(sampler_id)
        self._make_room()
        return snapshot.version, LoraTensors(snapshot.layout, snapshot.flat)

    def forget(self, run_id: str) -> None:
        """Drop everything of a run."""
        for sampler_id in [known for known, snapshot in self._kept.items() if snapshot.run_id == run_id]:
            self._drop(sampler_id)
        self._expired = {sampler: run for sampler, run in self._expired.items() if run != run_id}

    def _make_room(self) -> None:
        in_memory = [snapshot for snapshot in self._kept.values() if snapshot.flat is not None]
        for snapshot in in_memory[: -self._in_memory]:
            if snapshot.file is None:
                file = self._scratch / f"snapshot-{next(self._file_numbers)}.safetensors"
                assert snapshot.flat is not None
                with naming(file, "make room where the gateway keeps its data"):
                    save_weights(file, snapshot.flat)
                snapshot.file = file  # only now: it is read in place of what is given up here
            snapshot.flat = None

    def _drop(self, sampler_id: str) -> None:
        snapshot = self._kept.pop(sampler_id)
        if snapshot.file is not None:
            snapshot.file.unlink(missing_ok=True)
