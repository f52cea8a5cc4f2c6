from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.config_pages import configuration_markdown, section_of, starter_toml
from flows.checks.prepare import check_inputs
from flows.config.pipeline import PipelineConfig
from flows.load_config import CONFIGS, ConfigError, load_algorithm, load_config, parse_config
from flows.stages.checks import check_pipeline_inputs
from tasks.rewards import needs_answer

ROOT = Path(__file__).parents[2]
CONFIG_FILES = ROOT / "deployments" / "configs"
PIPELINES = [CONFIG_FILES / "pipeline.toml"]
SHIPPED = sorted(set(CONFIG_FILES.glob("*.toml")) - set(PIPELINES))
TINY = {"model": {"name": "tiny"}}
TO_RUN: dict[str, dict[str, Any]] = {
    "dpo": {"data": {"source": "addition-1digit-preferences"}},
    "opd": {"teacher": {"artifact_id": "an earlier run's"}},
}
"""What a starter leaves open because no default can know it."""
REQUIRED: dict[str, dict[str, Any]] = {
    "custom": {"build_loss": "algorithms:build_loss"},
    "sdpo": {"feedback": "verifier"},
    "ttt": {"rewards": [{"function": "number"}]},
}


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_a_starter_means_exactly_the_defaults(algorithm: str) -> None:
    required = REQUIRED.get(algorithm, {})
    table = tomllib.loads(starter_toml(algorithm))
    assert parse_config(table | required) == (algorithm, CONFIGS[algorithm](**required))


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_a_starter_can_be_run_once_it_is_told_what_it_cannot_know(algorithm: str) -> None:
    table = tomllib.loads(starter_toml(algorithm))
    known = {**TINY, **TO_RUN.get(algorithm, {}), **REQUIRED.get(algorithm, {})}
    named, config = parse_config(table | known)
    assert isinstance(config, CONFIGS[algorithm])
    check_inputs(named, config)


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


@pytest.mark.parametrize(
    ("algorithm", "said"), [("ttt", "[[rewards]]"), ("custom", "build_loss"), ("sdpo", "feedback")]
)
def test_a_starter_says_at_its_top_what_must_be_set(algorithm: str, said: str) -> None:
    assert starter_toml(algorithm).splitlines()[1].startswith(f"# Must be set below: {said}. ")


def test_a_table_that_must_be_set_is_the_first_of_the_tables() -> None:
    tables = [line for line in starter_toml("ttt").splitlines() if line.lstrip("# ").startswith("[")]
    assert tables[0] == "# [[rewards]]"


def test_a_table_that_is_absent_by_default_is_there_to_be_uncommented() -> None:
    text = starter_toml("custom")
    commented = text[text.index("# [teacher]") :].splitlines()
    assert all(line.startswith("# ") for line in commented)
    uncommented = "\n".join(line.removeprefix("# ") for line in commented if " = " in line or "[" in line)
    assert tomllib.loads(uncommented) == {"teacher": {"session": "shared"}}


def test_docs_configuration_is_made_from_the_models() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration_markdown(), "regenerate it: make docs"


def test_every_algorithm_has_a_configuration_that_is_shipped() -> None:
    assert set(CONFIGS) <= {path.stem for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_configuration_is_its_algorithms_and_proves_its_data_template_and_rewards(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # paths in a configuration are seen from where it is run
    # The tiny model's files are made here, and a teacher's id is a run's; everything else is checked as it is shipped.
    teacher = ["teacher.artifact_id=ID"] if path.stem == "opd" else []
    algorithm, config = load_algorithm(path, ["model.name=tiny", *teacher])
    assert type(config) is CONFIGS[algorithm]
    assert path.stem in {algorithm, "demo-grpo-addition"}
    check_inputs(algorithm, config)


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_a_shipped_pipeline_proves_the_data_templates_rewards_and_gates_of_all_its_stages(path: Path) -> None:
    algorithm, config = load_config(path, ["shared.model.name=tiny"])
    assert algorithm == "pipeline"
    assert isinstance(config, PipelineConfig)
    assert all(stage.require for stage in config.stages)
    check_pipeline_inputs(config)


def test_the_shipped_opd_without_a_teacher_is_refused_before_anything_is_allocated() -> None:
    algorithm, config = load_algorithm(ROOT / "deployments" / "configs" / "opd.toml", ["model.name=tiny"])
    with pytest.raises(ConfigError, match=r"set teacher\.name to another model, or teacher\.artifact_id"):
        check_inputs(algorithm, config)


def test_the_shipped_dpo_asks_pairs_for_no_answer() -> None:
    _, config = load_algorithm(ROOT / "deployments" / "configs" / "dpo.toml")
    assert not needs_answer([*config.reward_terms(), *config.evaluation_terms()])
