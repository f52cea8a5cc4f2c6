"""deployments/team: images, job templates and manifests, looked at without an engine or a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from jsonschema import Draft202012Validator
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from cli.worker import CLOSING_S, HOOKS_S
from deployments.names import HEARTBEAT
from tasks.prefect_server import SERVER_SETTINGS

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "deployments" / "team"
TEMPLATES = {path.stem: json.loads(path.read_text()) for path in sorted(TEAM.glob("*.json"))}
DOCKERFILE = (TEAM / "Dockerfile").read_text()
COMPOSE = (TEAM / "compose.yaml").read_text()
SERVICES = yaml.safe_load(COMPOSE)["services"]
# A parser of manifests takes them one by one: an anchor of one is unknown in the next.
MANIFESTS = [yaml.safe_load(text) for text in (TEAM / "kubernetes.yaml").read_text().split("\n---\n")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KEY = "WHITNEY_API_KEY"


@pytest.fixture
def api(prefect_server: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


def variables(template: dict[str, Any]) -> dict[str, Any]:
    """What a deployment may set, by name."""
    found: dict[str, Any] = template["variables"]["properties"]
    return found


def test_there_is_a_template_for_every_kind_of_work_pool() -> None:
    assert list(TEMPLATES) == ["docker", "kubernetes", "process"]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_names_only_variables_that_it_has_and_its_defaults_fit_them(kind: str) -> None:
    template = TEMPLATES[kind]
    named = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert named <= set(variables(template))
    defaults = {name: value["default"] for name, value in variables(template).items() if "default" in value}
    Draft202012Validator(template["variables"]).validate(defaults)
    assert defaults["env"] == HEARTBEAT, "no key, which everybody could read in the UI"


@pytest.mark.parametrize("kind", TEMPLATES)
def test_prefects_server_takes_the_template_for_a_work_pool_of_its_kind(kind: str, api: SyncPrefectClient) -> None:
    name = f"{kind}-{uuid4().hex[:8]}"
    api.create_work_pool(WorkPoolCreate(name=name, type=kind, base_job_template=TEMPLATES[kind]))
    assert api.read_work_pool(name).base_job_template == TEMPLATES[kind]


async def test_the_process_template_is_prefects_own_with_a_heartbeat_and_deployments_add_to_it() -> None:
    ours, theirs = TEMPLATES["process"], ProcessWorker.get_default_base_job_template()
    variables(theirs)["env"]["default"] = HEARTBEAT
    assert ours == theirs
    job = await ProcessJobConfiguration.from_template_and_values(ours, {"env": {"MINE": "1"}})
    assert job.env == HEARTBEAT | {"MINE": "1"}


def test_a_job_on_kubernetes_has_its_key_from_the_secret_and_the_folder_that_all_share() -> None:
    spec = TEMPLATES["kubernetes"]["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "whitney"}}]
    assert container["volumeMounts"] == [{"name": "work", "mountPath": "/work"}]
    assert spec["volumes"] == [{"name": "work", "persistentVolumeClaim": {"claimName": "whitney-work"}}]
    assert spec["terminationGracePeriodSeconds"] > CLOSING_S + HOOKS_S


def test_what_the_images_copy_is_there_and_not_ignored_and_every_package_is_copied() -> None:
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    ignored = (TEAM / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert sorted(copied) == sorted(line.removeprefix("!") for line in ignored if line.startswith("!"))
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {package.partition(".")[0] for package in PROJECT["tool"]["setuptools"]["packages"]} <= set(copied)


def test_pytorch_is_in_the_gateways_image_alone_at_the_version_of_the_makefile() -> None:
    before, gateway = DOCKERFILE.split("FROM worker AS gateway")
    assert "torch" not in "".join(line for line in before.splitlines() if not line.startswith("#")).lower()
    (version,) = re.findall(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"ARG TORCH={version}\n" in gateway


def test_images_do_not_run_as_root() -> None:
    users = re.findall(r"^(FROM|USER) (\S+)", DOCKERFILE, re.MULTILINE)
    assert [users[index - 1][1] for index in range(1, len(users)) if users[index][0] == "FROM"][1:] == ["whitney"]
    assert users[-1] == ("USER", "whitney")


def test_compose_takes_secrets_from_the_env_file_and_refuses_to_start_without() -> None:
    asked = dict(re.findall(r"\$\{(\w+)(:[?-])?", COMPOSE))
    example = re.findall(r"^(\w+)=(.*)$", (TEAM / "env.example").read_text(), re.MULTILINE)
    assert {name for name, value in example if not value} == {"DATABASE_PASSWORD", KEY}
    assert set(asked) - {"TORCH_INDEX_URL"} == {name for name, _ in example}
    assert {name for name, operator in asked.items() if operator == ":?"} == {"DATABASE_PASSWORD", KEY}


def test_compose_gives_a_worker_the_shared_folder_and_time_to_close_its_sessions() -> None:
    worker = SERVICES["worker"]
    assert worker["volumes"][0].endswith(":/work")
    assert worker["deploy"]["replicas"] >= 2
    assert int(worker["stop_grace_period"].removesuffix("s")) > CLOSING_S + HOOKS_S
    assert KEY in worker["environment"]
    assert KEY not in SERVICES["prefect"]["environment"]


def test_the_servers_settings_are_those_of_our_own_servers_and_give_prefect_its_database(tmp_path: Path) -> None:
    settings = dict(
        line.split("=", 1)
        for line in (TEAM / "prefect-server.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert settings.items() <= SERVER_SETTINGS.items()
    assert "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE" in settings
    database = {
        name: "p/w" if name.endswith("PASSWORD") else str(value)
        for name, value in SERVICES["prefect"]["environment"].items()
    }
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "from prefect.settings import get_current_settings as settings;"
            "print(settings().server.database.connection_url.get_secret_value())",
        ],
        env=clean | settings | database | {"PREFECT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "postgresql+asyncpg://prefect:p%2Fw@database:5432/prefect"


def test_workers_on_kubernetes_have_the_key_from_the_secret_the_volume_and_time_to_close_their_sessions() -> None:
    by_kind = {manifest["kind"]: manifest for manifest in MANIFESTS}
    assert list(by_kind) == ["ConfigMap", "PersistentVolumeClaim", "Deployment", "Job"]
    for kind in ("Deployment", "Job"):
        spec = by_kind[kind]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        refs = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in container["env"]}
        assert refs[KEY] == {"name": "whitney", "key": KEY}
        claim = spec["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert claim == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    worker = by_kind["Deployment"]["spec"]
    assert worker["selector"]["matchLabels"] == worker["template"]["metadata"]["labels"]
    assert worker["template"]["spec"]["terminationGracePeriodSeconds"] > CLOSING_S + HOOKS_S


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_the_manifests() -> None:
    command = ["kubectl", "label", "--local", "-f", str(TEAM / "kubernetes.yaml"), "read=yes", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_of_it_is_in_the_wheel_but_for_files_that_begin_with_a_dot() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["deployments"]
    assert [
        path.name for path in TEAM.iterdir() if not any(fnmatch(f"team/{path.name}", one) for one in patterns)
    ] == []
