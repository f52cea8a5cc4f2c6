from pathlib import Path

import pytest

from tasks.prices import GpuPrice, PriceError, Prices, read_prices

FILE = """
currency = "€"
[operations]
sample = 0.01
optim_step = 0.1
[tokens]
prefill = 0.5
sampled = 2
[gpu]
kind = "H100"
count = 2
per_hour = 3.0
"""


def test_operations_are_priced_one_by_one_tokens_by_the_million_and_gpus_by_the_hour(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(FILE)
    prices = read_prices(tmp_path / "prices.toml")
    assert prices.currency == "€"
    assert prices.gpu is not None
    assert prices.gpu.hardware.name == "h100"
    assert prices.cost({"sample": 10, "save_state": 7}, {}) == pytest.approx(0.1), "what has no price is free"
    assert prices.cost({}, {"prefill": 2e6, "sampled": 1e6, "trained": 9e9}) == pytest.approx(3.0)
    assert prices.cost({}, {}, seconds=1800) == pytest.approx(2 * 3.0 / 2)
    assert Prices(gpu=GpuPrice(kind="l4")).cost({"sample": 1}, {"sampled": 1}, 3600) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[operations]\nsampel = 1", "unknown field 'operations.sampel': did you mean 'sample'? known: forward, "),
        ("[token]\nsampled = 1", "unknown field 'token': did you mean 'tokens'? known: currency, operations, tokens"),
        ("[gpu]\nkind = 'h100'\nhour = 1", "unknown field 'gpu.hour': did you mean 'per_hour'? known: kind, count"),
        ("[tokens]\nsampled = -1", "tokens.sampled = -1: input should be greater than or equal to 0"),
        ("[tokens]\nsampled = nan", "tokens.sampled = nan: input should be a finite number"),
        ("[tokens]\nsampled = 1e308", "tokens.sampled = 1e+308: input should be less than or equal to 1000000000000"),
        ("[gpu]\nkind = 'l4'\nutilization = 1e-320", "gpu.utilization = 1e-320: input should be greater than or"),
        ("[tokens]\nsampled = 'two'", "tokens.sampled = 'two': input should be a valid number"),
        ("[gpu]\nkind = 'h10'", "gpu.kind = 'h10': unknown GPU 'h10': did you mean 'h100'?"),
        ("[gpu]\nper_hour = 3", "gpu.kind is missing"),
        ("[gpu]\nkind = 'l4'\nutilization = 40", "gpu.utilization = 40: input should be less than or equal to 1"),
        ("currency = ", "is no TOML"),
    ],
    ids=lambda value: value.replace("\n", " ") if isinstance(value, str) and "\n" in value else None,
)
def test_a_price_file_that_is_wrong_is_told_by_field_and_value(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(PriceError) as error:
        read_prices(tmp_path / "prices.toml")
    assert said in str(error.value)
    assert "prices.toml" in str(error.value)


def test_a_price_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match=r"'none\.toml': no such file; `whitney init prices` writes"):
        read_prices("none.toml")
