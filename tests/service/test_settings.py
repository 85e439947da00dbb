from __future__ import annotations

import re
from pathlib import Path

import pytest

from tradewind.errors import PrerequisiteError, SpecError
from tradewind.service.settings import ServiceSettings, check_secrets, read_settings


def config(folder: Path, text: str) -> Path:
    path = folder / "tradewind.yaml"
    path.write_text(text)
    return path


def test_nothing_is_the_defaults() -> None:
    assert read_settings({}, {"PATH": "/bin", "TRADEWIND_HOME": "/x"}, None) == ServiceSettings()


def test_flags_come_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = config(tmp_path, "port: 1\nruns: 1\nhost: file\nstop_seconds: 1.5\n")
    environment = {"TRADEWIND_SERVICE_PORT": "2", "TRADEWIND_SERVICE_RUNS": "2"}
    settings = read_settings({"port": 3}, environment, file)
    assert (settings.port, settings.runs, settings.host, settings.stop_seconds) == (3, 2, "file", 1.5)


def test_values_of_the_environment_are_read_by_their_type() -> None:
    environment = {
        "TRADEWIND_SERVICE_BEHIND_PROXY": "true",
        "TRADEWIND_SERVICE_SESSION_HOURS": "1.5",
        "TRADEWIND_SERVICE_TLS_CERTIFICATE": "/etc/chain.pem",
        "TRADEWIND_SERVICE_RESULTS_PLACES": '{"s3://b/{user}": {"user": "k", "password": "env:S3"}}',
        "TRADEWIND_SERVICE_CONFIG": "/elsewhere.yaml",
    }
    settings = read_settings({}, environment, None)
    assert settings.behind_proxy is True
    assert settings.session_hours == 1.5
    assert settings.tls_certificate == Path("/etc/chain.pem")
    assert settings.results_places == {"s3://b/{user}": {"user": "k", "password": "env:S3"}}


def test_paths_in_the_file_count_from_its_folder(tmp_path: Path) -> None:
    file = config(tmp_path, "tls_certificate: tls/chain.pem\ntls_key: /abs/key.pem\n")
    settings = read_settings({}, {}, file)
    assert (settings.tls_certificate, settings.tls_key) == (tmp_path / "tls/chain.pem", Path("/abs/key.pem"))


@pytest.mark.parametrize(
    ("flags", "environment", "text", "said"),
    [
        ({"port": 70000}, {}, "", "the command line: port: 70000 should be less than or equal to 65535"),
        ({"prot": 1}, {}, "", "the command line: unknown key 'prot' (did you mean 'port'?)"),
        ({}, {"TRADEWIND_SERVICE_RUNS": "many"}, "", "the environment, TRADEWIND_SERVICE_RUNS: runs: wanted a whole"),
        ({}, {"TRADEWIND_SERVICE_PROT": "1"}, "", "TRADEWIND_SERVICE_PROT: unknown key 'prot' (did you mean"),
        ({}, {}, "runs: 2\nport: x\n", "tradewind.yaml:2: port: wanted a whole number, got 'x'"),
        ({}, {}, "log_format: yaml\n", "tradewind.yaml:1: log_format: 'yaml' should be 'text' or 'json'"),
        ({}, {}, "port: [1\n", "tradewind.yaml:2: is not YAML"),
        ({}, {}, "- port\n", "tradewind.yaml:1: is not a mapping"),
        ({}, {}, "port: 1\nport: 2\n", "tradewind.yaml:2"),
    ],
)
def test_an_error_says_where_it_stands(
    tmp_path: Path, flags: dict[str, object], environment: dict[str, str], text: str, said: str
) -> None:
    file = config(tmp_path, text) if text else None
    with pytest.raises(SpecError) as caught:
        read_settings(flags, environment, file)
    assert said in str(caught.value)
    assert "job" not in str(caught.value)


def test_there_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is no file .*administration\.md"):
        read_settings({}, {}, tmp_path / "none.yaml")


@pytest.mark.parametrize("key", ["smtp_password", "metrics_token", "secret_key"])
def test_a_secret_that_is_written_out_is_not_repeated(key: str) -> None:
    with pytest.raises(SpecError, match="no reference to a secret") as caught:
        read_settings({}, {f"TRADEWIND_SERVICE_{key.upper()}": "hunter2hunter2"}, None)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SpecError) as caught:
        read_settings({"results_places": {"s3://b": {"password": "hunter2hunter2"}}}, {}, None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["smtp_password", "metrics_token", "secret_key"])
def test_a_secret_that_cannot_be_read_is_told_before_anything_begins(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    for reference in ("env:NOT_THERE", f"file:{tmp_path}/not-there"):
        with pytest.raises(PrerequisiteError, match=f"(?i){key}.*not.there") as told:
            check_secrets(read_settings({key: reference}, {}, None))
        assert told.value.exit_code == 3
    monkeypatch.setenv("NOT_THERE", "x")
    check_secrets(read_settings({key: "env:NOT_THERE"}, {}, None))


def test_a_place_for_results_whose_password_cannot_be_read_is_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    address = "webdavs://cloud.example.org/{user}"
    for reference in ("env:NOT_THERE", f"file:{tmp_path}/not-there"):
        places = {"s3://open": {}, address: {"user": "tradewind", "password": reference}}
        with pytest.raises(PrerequisiteError, match=f"(?i)results_places.*{re.escape(address)}.*not.there") as told:
            check_secrets(read_settings({"results_places": places}, {}, None))
        assert "\n" not in told.value.message
    monkeypatch.setenv("NOT_THERE", "x")
    check_secrets(read_settings({"results_places": {address: {"password": "env:NOT_THERE"}}}, {}, None))
