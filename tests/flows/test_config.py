"""Configurations: every mistake is named, with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.config import GrpoConfig, SftConfig
from flows.load_config import ConfigError, load_config, parse_config


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_a_file_names_its_algorithm_and_becomes_that_algorithms_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, 'algorithm = "grpo"\ncycles = 3\n[lora]\nrank = 4\n[[rewards]]\nfunction = "exact"\n')
    algorithm, config = load_config(path)
    assert algorithm == "grpo"
    assert isinstance(config, GrpoConfig)
    assert (config.cycles, config.lora.rank, config.rewards[0].function) == (3, 4, "exact")


def test_overrides_are_put_over_the_file_with_toml_values_or_bare_strings(tmp_path: Path) -> None:
    path = written(tmp_path, 'algorithm = "sft"\n[lora]\nrank = 4\n')
    _, config = load_config(path, ["lora.rank=8", "data.source=capitals", "optimizer.learning_rate=2e-4"])
    assert isinstance(config, SftConfig)
    assert (config.lora.rank, config.data.source, config.optimizer.learning_rate) == (8, "capitals", 2e-4)


@pytest.mark.parametrize("word", ["none", "null", "None"])
def test_an_override_can_take_a_field_of_the_file_away(tmp_path: Path, word: str) -> None:
    path = written(tmp_path, 'algorithm = "grpo"\n[evaluation]\nreward = "exact"\n[stop]\nmax_kl = 2.0\n')
    _, config = load_config(path, [f"evaluation.reward={word}", f"stop={word}", f"nothing.here={word}"])
    assert config.evaluation.reward is None
    assert config.stop.max_kl is None


def test_none_in_quotes_is_a_text(tmp_path: Path) -> None:
    path = written(tmp_path, 'algorithm = "grpo"\n')
    assert load_config(path, ['name="none"'])[1].name == "none"


def test_every_mistake_is_listed_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, 'algorithm = "grpo"\ncycels = 3\ngroup_size = 1\n[optimizer]\nlearning_rate = "fast"\n')
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert any("unknown field 'cycels': did you mean 'cycles'?" in line for line in lines)
    assert any("group_size = 1" in line and "2" in line for line in lines)
    assert any("optimizer.learning_rate = 'fast'" in line for line in lines)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"algorithm": "grop"}, "did you mean 'grpo'?"),
        ({}, 'algorithm is missing: begin with algorithm = "grpo"'),
        ({"algorithm": ["grpo"]}, "algorithm = ['grpo'] is unknown"),
        ({"algorithm": "custom"}, 'build_loss is missing: "module:function"'),
        ({"algorithm": "grpo", "lora": {"rnk": 2}}, "unknown field 'lora.rnk': did you mean 'rank'? known: "),
        ({"algorithm": "grpo", "rewards": [{"fn": "exact"}]}, "unknown field 'rewards[0].fn'"),
        ({"algorithm": "sft", "budget": {"max_cost": 3}}, ": budget.max_cost = 3: needs prices: name a price file"),
        (
            {"algorithm": "sft", "model": {"initial_optimizer": True}},
            ": model.initial_optimizer = true: only a saved state",
        ),
        ({"algorithm": "grpo", "name": "../escape"}, "name = '../escape'"),
    ],
)
def test_a_mistake_names_the_field_and_what_is_known(table: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(table)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("override", "said"), [("cycles", "field.name=value"), ("cycles.x=1", "'cycles' is not a table")]
)
def test_an_override_that_is_none_says_how_to_write_it(tmp_path: Path, override: str, said: str) -> None:
    path = written(tmp_path, 'algorithm = "grpo"\ncycles = 3\n')
    with pytest.raises(ConfigError) as raised:
        load_config(path, [override])
    assert said in str(raised.value)


def test_a_missing_file_a_broken_one_and_one_that_is_no_configuration_by_its_size_are_said_plainly(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError) as missing:
        load_config(tmp_path / "none.toml")
    assert "no such file" in str(missing.value)
    with pytest.raises(ConfigError) as broken:
        load_config(written(tmp_path, "cycles = = 3"))
    assert "not valid TOML" in str(broken.value)
    with pytest.raises(ConfigError, match=r"larger than 512 KiB.*data\.source"):
        load_config(written(tmp_path, "x = 1\n" * 100_000))
