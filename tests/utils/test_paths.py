"""Where data is kept when the environment says little, or something odd."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.errors import InputError
from tradewind.utils.paths import data_folder, expand, make_private

_HOMELESS = "~no-such-user/x"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    for variable in ("HOME", "XDG_DATA_HOME", "TRADEWIND_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(InputError, match=rf"the user {os.getuid()} has no home folder .* \(set TRADEWIND_HOME to"):
        data_folder()
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    assert data_folder() == tmp_path


def test_a_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert expand("~/data") == Path("/somewhere/data")
    assert expand("data/~") == Path("data/~")
    monkeypatch.setenv("TRADEWIND_HOME", "~no-such-user/data")
    with pytest.raises(InputError, match="there is no home folder ~no-such-user for ~no-such-user/data"):
        data_folder()


@pytest.mark.parametrize(
    ("kind", "name", "settings", "ask"),
    [
        ("catalogue", "csv", {"path": _HOMELESS}, lambda part: part.offers()),
        ("runner", "slurm", {"folder": _HOMELESS}, repr),
        ("provisioner", "libvirt", {"image": "a", "storage": _HOMELESS}, repr),
        ("provisioner", "opennebula", {"template": "a", "identity": _HOMELESS}, repr),
        (
            "provisioner",
            "opennebula",
            {"template": "a", "auth": f"file:{_HOMELESS}"},
            lambda part: part.settings.session(),
        ),
        ("provisioner", "terraform", {"program": _HOMELESS}, repr),
        ("provisioner", "terraform", {"module": _HOMELESS}, repr),
    ],
)
def test_so_is_one_in_the_settings_of_parts(
    kind: str, name: str, settings: dict[str, str], ask: Callable[[Any], object], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="there is no home folder ~no-such-user for ~no-such-user/x"):
        ask(plugins.create(kind, name, settings, data_folder=tmp_path))


def test_a_name_that_no_database_can_open_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", os.fsdecode(bytes(tmp_path) + b"/a\xff"))
    with pytest.raises(InputError, match="has a name that is not UTF-8"):
        data_folder()
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "mit Wörtern ✓"))
    assert data_folder() == tmp_path / "mit Wörtern ✓"


def test_the_first_folder_that_is_made_makes_those_above_it_private(tmp_path: Path) -> None:
    """`tradewind submit` kept its snapshot first, and left the data folder open to all."""
    make_private(tmp_path / "data" / "code" / "snapshots")
    make_private(tmp_path / "data" / "runs")
    for made in ("data", "data/code", "data/code/snapshots", "data/runs"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700
