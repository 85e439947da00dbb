"""The files that run the service elsewhere: their settings are ours, and they parse."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tradewind.service.settings import CONFIGURATION_VARIABLE, ENVIRONMENT_PREFIX, read_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def known(variables: dict[str, str]) -> dict[str, str]:
    """Those of the service, which must be settings of ours."""
    ours = {name: value for name, value in variables.items() if name.startswith(ENVIRONMENT_PREFIX)}
    read_settings({}, ours, None)
    return ours


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def test_the_image_is_not_run_by_root_and_looks_after_itself() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line.strip() for line in text.splitlines()]
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER tradewind"]
    assert lines.index("USER tradewind") < lines.index('ENTRYPOINT ["tini", "--", "tradewind"]')
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
    assert "/healthz" in text
    known(dict(re.findall(r"(TRADEWIND_\w+)=(\S+)", text)))
    assert (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()[0] == "*"


def test_the_compose_file_has_settings_of_ours(compose: dict[str, Any]) -> None:
    service = compose["services"]["tradewind"]
    ours = known(service["environment"])
    assert ours[f"{ENVIRONMENT_PREFIX}DATABASE"] == "postgresql://tradewind@database/tradewind"
    commented = dict(re.findall(rf"# ({ENVIRONMENT_PREFIX}\w+): \"?([^\"\n]+)", (DEPLOY / "compose.yaml").read_text()))
    assert len(known(commented)) == 3
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    for name in service["secrets"]:
        assert name in compose["secrets"]
    for volume in (*service["volumes"], *compose["services"]["database"]["volumes"]):
        assert volume.partition(":")[0] in compose["volumes"]


def test_compose_publishes_to_this_machine_only(compose: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["tradewind"]["ports"])
    assert "ports" not in compose["services"]["database"]


def test_a_container_that_is_made_anew_has_the_name_that_its_runs_were_started_under(compose: dict[str, Any]) -> None:
    service = compose["services"]["tradewind"]
    assert service["hostname"] == "tradewind"
    assert "deploy" not in service, "two containers of one name would take each other's runs for dead"


@pytest.mark.parametrize("there", [True, False])
def test_the_server_begins_only_with_a_password(compose: dict[str, Any], tmp_path: Path, there: bool) -> None:
    tini, dashes, shell, option, script, name = compose["services"]["tradewind"]["entrypoint"]
    assert (tini, dashes, shell, option) == ("tini", "--", "sh", "-c")
    secret, kept = tmp_path / "database", tmp_path / ".pgpass"
    if there:
        secret.write_text("s3cret\n")
    script = script.replace("$$", "$").replace("/run/secrets/database", str(secret)).replace("/data/.pgpass", str(kept))
    script = script.replace("exec tradewind", "exec echo tradewind")
    done = subprocess.run([shell, option, script, name, "serve"], capture_output=True, text=True, timeout=20)
    if there:
        assert (done.returncode, done.stdout) == (0, "tradewind serve\n")
        assert kept.read_text() == "*:*:*:tradewind:s3cret\n"
        assert kept.stat().st_mode & 0o077 == 0
    else:
        assert done.returncode != 0
        assert done.stdout == ""
        assert str(secret) in done.stderr


def test_the_unit_has_settings_of_ours_and_gives_nothing_away() -> None:
    text = (DEPLOY / "tradewind.service").read_text()
    variables = dict(
        line.partition("=")[2].split("=", 1) for line in text.splitlines() if line.startswith("Environment=")
    )
    assert CONFIGURATION_VARIABLE in known(variables)
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "KillMode=process"):
        assert line in text.splitlines()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze (apt-get install systemd)")
    # All that it may say is that this machine has no such program.
    text = (DEPLOY / "tradewind.service").read_text().replace("/opt/tradewind/bin/tradewind", "/bin/true")
    unit = tmp_path / "tradewind.service"
    unit.write_text(text)
    done = subprocess.run([program, "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_proxies_keep_figures_to_themselves_and_pass_streams_on() -> None:
    caddy, nginx = (DEPLOY / "Caddyfile").read_text(), (DEPLOY / "nginx.conf").read_text()
    for path in ("metrics", "readyz", "healthz"):
        assert path in caddy and path in nginx
    assert "flush_interval -1" in caddy
    assert re.search(r"proxy_buffering\s+off;", nginx)
    assert re.search(r"X-Forwarded-For\s+\$remote_addr;", nginx)
