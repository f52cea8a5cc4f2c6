from benchmarks import datums


def test_the_datum_benchmark_measures_every_stage_on_one_payload() -> None:
    figures = {figure.name: figure for figure in datums.run(quick=True)}
    assert set(figures) == {"build", "scale", "encode", "build, scale and encode", "on the wire"}
    assert all(figure.ours > 0 for figure in figures.values())
    assert figures["build, scale and encode"].ours < figures["build"].ours
    assert figures["on the wire"].met
