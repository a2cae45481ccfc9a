"""The files of deploy/ agree with the settings there are, and with each other. No container is started."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.paths import ROOT

from deadletter.cli.main import whole_app
from deadletter.config import load
from deadletter.config.plain import CONFIG_VARIABLE
from deadletter.config.settings import Settings
from deadletter.config.tables.keys import variables
from deadletter.service.telling.metric_list import METRICS

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.iterdir() if path.is_file())
STATE = "/var/lib/deadletter"
SETTINGS = "/etc/deadletter/deadletter.toml"
BEING_BUILT: tuple[str, ...] = ()
"""Commands that the documents already speak of; each leaves this list when it is there."""


def docker_lines() -> list[str]:
    """Instructions, continued lines joined, comments gone."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def docker_environment() -> dict[str, str]:
    (line,) = [line for line in docker_lines() if line.startswith("ENV ")]
    return dict(re.findall(r'(\w+)="?([^"\s]+)"?', line))


def compose() -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return tree


def kubernetes() -> dict[str, Any]:
    return {tree["kind"]: tree for tree in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def unit(text: str | None = None) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text or (DEPLOY / "deadletter.service").read_text())
    return parser


def started(tmp_path: Path, settings: str, environment: dict[str, str]) -> Settings:
    """What the service would be told."""
    file = tmp_path / "deadletter.toml"
    file.write_text(settings)
    told = {**environment, CONFIG_VARIABLE: str(file)}
    return load(environment=told, directory=tmp_path, home=tmp_path)


def seconds(text: str) -> int:
    assert text.endswith("s"), text
    return int(text.removesuffix("s"))


def commands() -> set[str]:
    group = typer.main.get_command(whole_app())
    found: set[str] = set()
    for name, command in getattr(group, "commands").items():  # noqa: B009 -- typer's own type has no such field
        inner = getattr(command, "commands", None)
        found |= {f"{name} {below}" for below in inner or ()}
        if not inner or getattr(command, "invoke_without_command", False):
            found.add(name)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_is_a_setting_there_is(path: Path) -> None:
    named = set(re.findall(r"\bDLQ_[A-Z_]+[A-Z]", path.read_text()))
    assert named <= {*variables(), CONFIG_VARIABLE}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_in_the_readme(path: Path) -> None:
    assert path.name == "README.md" or f"({path.name})" in (DEPLOY / "README.md").read_text()


def test_the_readme_says_what_was_not_tried() -> None:
    assert "**Not verified by a run:**" in (DEPLOY / "README.md").read_text()


def test_no_registry_is_named() -> None:
    images = [line.split()[1] for line in docker_lines() if line.startswith("FROM ")]
    images += [service["image"] for service in compose()["services"].values()]
    assert images
    assert [image for image in images if "/" in image] == []


def test_the_image_runs_the_service_as_nobody_in_particular(tmp_path: Path) -> None:
    lines = docker_lines()
    (user,) = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert user == "10025:10025"
    assert 'ENTRYPOINT ["dlq"]' in lines
    assert 'CMD ["serve"]' in lines
    (workdir,) = [
        line.split()[1] for line in lines[lines.index("FROM python:3.12-slim") :] if "WORKDIR" in line
    ]
    assert f"{workdir}/deadletter.toml" == SETTINGS
    assert f"VOLUME {STATE}" in lines
    settings = started(tmp_path, "", {k: v for k, v in docker_environment().items() if k.startswith("DLQ_")})
    assert settings.store.url is not None
    assert settings.store.url.startswith(f"sqlite:///{STATE}/")
    assert settings.serve.listen == "0.0.0.0:8025"


def test_the_image_asks_itself_where_it_listens() -> None:
    (health,) = [line for line in docker_lines() if line.startswith("HEALTHCHECK ")]
    port = docker_environment()["DLQ_SERVE_LISTEN"].rpartition(":")[2]
    assert f"http://127.0.0.1:{port}/health/ready" in health
    assert f"EXPOSE {port}" in docker_lines()
    (code,) = re.findall(r'"-c", "([^"]+)"', health)
    compile(code, "healthcheck", "exec")


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    rules = [
        line for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] != "#"
    ]
    assert rules[0] == "*"
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        name.removeprefix("./")
        for line in docker_lines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert not any(fnmatch(name, rule) for name in copied for rule in rules if rule.startswith("**"))
    assert "--require-hashes" in "\n".join(docker_lines())


def test_compose_starts_a_service_that_reaches_the_others(tmp_path: Path) -> None:
    services = compose()["services"]
    ours = services["deadletter"]
    assert (DEPLOY / ours["build"]["context"] / ours["build"]["dockerfile"]).is_file()
    said = {**docker_environment(), **ours["environment"]}
    environment = {
        k: re.sub(r"\$\{(\w+):-(\w+)\}", r"\2", v) for k, v in said.items() if k.startswith("DLQ_")
    }
    secret = re.compile(r"\$\{(\w+):\?[^}]+\}")
    assert {found for value in environment.values() for found in secret.findall(value)} == {
        "RABBITMQ_PASSWORD",
        "POSTGRES_PASSWORD",
    }
    environment = {k: secret.sub("pa-55_word", v) for k, v in environment.items()}
    settings = started(tmp_path, (DEPLOY / "deadletter.toml").read_text(), environment)
    address = settings.broker.addresses[0]
    assert (address.host, address.port, address.vhost) == ("rabbitmq", 5672, "/")
    assert address.user == services["rabbitmq"]["environment"]["RABBITMQ_DEFAULT_USER"]
    assert settings.broker.api == "http://deadletter:pa-55_word@rabbitmq:15672/api"
    database = services["postgres"]["environment"]
    expected = f"postgresql://{database['POSTGRES_USER']}:pa-55_word@postgres:5432/{database['POSTGRES_DB']}"
    assert settings.store.url == expected
    assert settings.watches
    assert seconds(ours["stop_grace_period"]) * 1000 > settings.serve.grace_ms
    assert settings.serve.listen is not None
    port = settings.serve.listen.rpartition(":")[2]
    assert ours["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert set(ours["depends_on"]) == {"rabbitmq", "postgres"}
    assert all("healthcheck" in services[name] for name in ours["depends_on"])
    (mounted,) = ours["volumes"]
    assert mounted == f"./deadletter.toml:{SETTINGS}:ro"
    used = {v.partition(":")[0] for s in services.values() for v in s.get("volumes", ()) if v[0] != "."}
    assert used == set(compose()["volumes"])


def test_kubernetes_runs_two_that_share_a_store(tmp_path: Path) -> None:
    trees = kubernetes()
    spec = trees["Deployment"]["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 10025
    environment = {entry["name"]: entry for entry in container["env"]}
    assert "valueFrom" in environment["DLQ_URL"]
    assert "valueFrom" in environment["DLQ_STORE"]
    assert environment[CONFIG_VARIABLE]["value"] == SETTINGS
    settings = started(tmp_path, trees["ConfigMap"]["data"]["deadletter.toml"], docker_environment())
    assert pod["terminationGracePeriodSeconds"] * 1000 > settings.serve.grace_ms
    assert settings.serve.listen is not None
    (port,) = container["ports"]
    assert str(port["containerPort"]) == settings.serve.listen.rpartition(":")[2]
    annotations = spec["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    probes = {
        name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probes[name]["path"] for name in ("livenessProbe", "readinessProbe")] == [
        "/health/live",
        "/health/ready",
    ]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert (mounts["settings"], mounts["state"]) == (str(Path(SETTINGS).parent), STATE)
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert trees["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_the_unit_says_what_the_service_does(tmp_path: Path) -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].endswith("/bin/dlq serve")
    assert service["ExecReload"].endswith("kill -HUP $MAINPID")
    assert service["DynamicUser"] == "yes"
    assert f"/var/lib/{service['StateDirectory']}" == STATE
    said = dict(
        re.findall(r"^Environment=(\w+)=(.*)$", (DEPLOY / "deadletter.service").read_text(), re.MULTILINE)
    )
    assert said.pop(CONFIG_VARIABLE) == SETTINGS
    settings = started(tmp_path, (ROOT / "docs/examples/serve.toml").read_text(), said)
    assert settings.store.url is not None
    assert settings.store.url.startswith(f"sqlite:///{STATE}/")
    assert seconds(service["TimeoutStopSec"]) * 1000 > settings.serve.grace_ms
    assert seconds(service["WatchdogSec"]) > 0


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a command in place of ours, which is not installed; without systemd it is parsed only."""
    text = (DEPLOY / "deadletter.service").read_text()
    assert set(unit(text)) == {"DEFAULT", "Unit", "Service", "Install"}
    if (analyze := shutil.which("systemd-analyze")) is None:
        return
    copy = tmp_path / "deadletter.service"
    copy.write_text(text.replace("/opt/deadletter/bin/dlq", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", copy], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "deadletter" in line]
    assert (done.returncode, said) == (0, [])


def test_alert_rules_name_metrics_and_labels_there_are() -> None:
    known = {metric.name: set(metric.labels) for metric in METRICS}
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        named = re.findall(r"(deadletter_[a-z_]+)(?:\{([^}]*)\})?", rule["expr"])
        assert named, rule
        for metric, selector in named:
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            by = set(re.findall(r"by \((\w+)\)", rule["expr"]))
            assert labels | by <= known[metric], rule
            shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
            assert shown <= by, rule
    thresholds = [int(rule["expr"].rpartition("> ")[2]) for rule in group["rules"][:2]]
    alerts = load(environment={}, directory=DEPLOY).alerts
    assert thresholds == [alerts.depth_warning, alerts.depth_critical]


BY_ITSELF = {"replay": "start"}
"""A group of commands of which one is meant when nobody names one."""
PAGES = [DEPLOY / "README.md", ROOT / "docs/manual-recovery.md", ROOT / "docs/configuration.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_commands_that_exist_are_told(page: Path) -> None:
    known = commands() | set(BEING_BUILT)
    groups = {name.partition(" ")[0] for name in known if " " in name}
    text = page.read_text()
    told = re.findall(r"(?:^ {4}|`)dlq ([a-z]+)(?: +([a-z]+))?", text, flags=re.MULTILINE)
    assert told
    for first, second in told:
        whole = f"{first} {second}".strip() if first in groups else first
        assert whole in known or f"{first} {BY_ITSELF.get(first)}" in known, f"dlq {first} {second}"


def test_every_option_that_is_told_is_one() -> None:
    group = typer.main.get_command(whole_app())
    text = (ROOT / "docs/manual-recovery.md").read_text()
    lines = re.findall(
        r"^ {4}dlq ([a-z]+)(?: (plan|diff|apply|explain|list|show|check))?(.*)$", text, re.MULTILINE
    )
    checked = 0
    for first, second, rest in lines:
        command = getattr(group, "commands").get(first)  # noqa: B009
        inner = getattr(command, "commands", {}).get(second or BY_ITSELF.get(first))
        found = inner or command
        if found is None:
            assert first in BEING_BUILT
            continue
        there = {option for parameter in found.params for option in parameter.opts}
        wanted = set(re.findall(r"(?<!\S)--[a-z-]+", rest))
        assert wanted <= there, f"dlq {first} {second}: {wanted - there}"
        checked += len(wanted)
    assert checked > 10
