from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cli.config_pages import configuration_markdown, section_of, starter_toml
from flows.load_config import CONFIGS, load_config, parse_config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_a_starter_means_exactly_the_defaults(algorithm: str) -> None:
    assert parse_config(tomllib.loads(starter_toml(algorithm))) == (algorithm, CONFIGS[algorithm]())


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_a_starter_names_every_field_and_explains_those_that_need_it(algorithm: str) -> None:
    text = starter_toml(algorithm)
    for name, field in CONFIGS[algorithm].model_fields.items():
        section = section_of(field)
        fields = section.model_fields if section else {name: field}
        for inner, its in fields.items():
            assert f"\n{inner} = " in text or f"\n# {inner} =" in text
            if its.description:
                assert its.description.split()[0] in text


def test_docs_configuration_is_made_from_the_models() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration_markdown(), "regenerate it: make docs"


@pytest.mark.parametrize("path", sorted((ROOT / "deployments" / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_configuration_is_valid(path: Path) -> None:
    algorithm, config = load_config(path)
    assert type(config) is CONFIGS[algorithm]
