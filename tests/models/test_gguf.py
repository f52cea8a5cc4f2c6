"""Our GGUF reader beside the format's own library, on files that library wrote."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from models import ModelError
from models.gguf import GgufFile


def written(path: Path, kind: Kind, weights: np.ndarray) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.merges", ["Ġ t", "a b"])
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_float32("some.float", 0.5)
    writer.add_tensor("first", np.ones(5, np.float32))
    writer.add_tensor("weights", gguf.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0, Kind.F32])
def test_weights_are_bit_for_bit_those_of_the_formats_own_library(tmp_path: Path, kind: Kind) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    ours = GgufFile(written(tmp_path / "file.gguf", kind, weights))
    theirs = gguf.GGUFReader(tmp_path / "file.gguf").tensors[1]
    np.testing.assert_array_equal(ours.tensor("weights"), gguf.dequantize(theirs.data, theirs.tensor_type))
    np.testing.assert_array_equal(ours.tensor("first"), np.ones(5, np.float32))


def test_metadata_of_every_kind_is_read(tmp_path: Path) -> None:
    metadata = GgufFile(written(tmp_path / "file.gguf", Kind.F32, np.zeros((1, 32), np.float32))).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == 3
    assert metadata["tokenizer.ggml.merges"] == ["Ġ t", "a b"]
    assert metadata["some.numbers"] == [1, 2, 3]
    assert metadata["some.float"] == 0.5


def test_a_quantisation_that_is_not_read_is_named(tmp_path: Path) -> None:
    content = written(tmp_path / "file.gguf", Kind.Q5_0, np.zeros((1, 32), np.float32))
    with pytest.raises(ModelError, match="tensor weights has quantisation type 6"):
        GgufFile(content).tensor("weights")


def test_another_file_is_refused_at_its_first_letters() -> None:
    with pytest.raises(ModelError, match="not a GGUF file"):
        GgufFile(b"PK\x03\x04 and so on")


def test_another_version_is_refused_by_its_number() -> None:
    with pytest.raises(ModelError, match="GGUF version 9"):
        GgufFile(b"GGUF" + struct.pack("<IQQ", 9, 0, 0))
