"""Where data is kept when the environment says little, or something odd."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from tradewind.errors import InputError
from tradewind.paths import data_folder, expand


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


def test_a_name_that_no_database_can_open_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", os.fsdecode(bytes(tmp_path) + b"/a\xff"))
    with pytest.raises(InputError, match="has a name that is not UTF-8"):
        data_folder()
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "mit Wörtern ✓"))
    assert data_folder() == tmp_path / "mit Wörtern ✓"
