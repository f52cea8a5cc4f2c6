from benchmarks import datums


def test_the_datum_benchmark_measures_every_stage_on_one_payload():
    figures = datums.run(quick=True)
    stages = {"build", "scale", "orjson", "json", "build_and_encode"}
    assert {f"{stage}_ktok_per_cpu_s" for stage in stages} <= set(figures)
    assert all(value > 0 for value in figures.values())
    assert figures["tokens"] == 8 * 1024
    assert figures["orjson_bytes_per_token"] < figures["json_bytes_per_token"]
