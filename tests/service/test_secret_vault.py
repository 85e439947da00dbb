from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import DeployError, ServiceError
from tradewind.service.context import Context, open_context
from tradewind.service.secret_vault import KEY_FILE, SecretVault
from tradewind.service.settings import ServiceSettings


def test_what_was_sealed_is_read_by_its_reference(context: Context) -> None:
    reference = context.sealer.seal("sesame")
    assert "sesame" not in reference
    assert resolve_secrets({"x": reference}) == {"x": "sesame"}
    context.sealer.forget(reference)
    context.sealer.forget(reference)
    with pytest.raises(DeployError, match="not there any more"):
        resolve_secrets({"x": reference})


def test_references_of_other_servers_are_unknown(context: Context) -> None:
    reference = context.sealer.seal("sesame")
    with pytest.raises(DeployError, match="known to its server only"):
        resolve_secrets({"x": reference.replace(":", ":0", 1)})


def test_the_key_is_this_users_alone(context: Context) -> None:
    context.sealer.derive("anything")
    key = context.data_folder / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_text().strip()) == 64


def test_servers_of_a_database_share_the_key(context: Context, tmp_path: Path) -> None:
    reference = context.sealer.seal("sesame")
    other = open_context(context.settings, context.url, context.data_folder)
    try:
        assert other.sealer.read(reference) == "sesame"
        assert other.sealer.derive("webhook:1:1") == context.sealer.derive("webhook:1:1")
        assert other.sealer.derive("webhook:1:1") != other.sealer.derive("webhook:1:2")
    finally:
        other.close()
    stranger = SecretVault(context.database, context.settings, tmp_path / "elsewhere")

    with pytest.raises(ServiceError, match="not the one that its database was used with"):
        stranger.derive("webhook:1:1")


def test_a_key_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TW_KEY", "x" * 64)
    settings = ServiceSettings(secret_key="env:TW_KEY")
    made = [open_context(settings, f"sqlite:///{tmp_path}/s.db", tmp_path / name) for name in ("a", "b")]
    try:
        assert made[1].sealer.read(made[0].sealer.seal("sesame")) == "sesame"
        assert not (tmp_path / "a" / KEY_FILE).exists()
    finally:
        for context in made:
            context.close()
    monkeypatch.setenv("TW_KEY", "short")
    context = open_context(settings, f"sqlite:///{tmp_path}/t.db", tmp_path / "c")
    try:
        with pytest.raises(ServiceError, match="too short"):
            context.sealer.seal("sesame")
    finally:
        context.close()
