"""A server that is started as root becomes somebody else, or says that it stays."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.operations.test_serve import refused

from tradewind.errors import InputError
from tradewind.service.operations.privileges import leave_root
from tradewind.service.settings import ServiceSettings

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

CHILD = """
import json, os, sys
from pathlib import Path
from tradewind.errors import TradewindError
from tradewind.service.operations import privileges
from tradewind.service.settings import ServiceSettings
given = json.loads(sys.argv[1])
sys.executable = given["python"]
try:
    said = privileges.leave_root(ServiceSettings(**given["settings"]), Path(given["folder"]))
    Path(given["folder"], "new").write_text("x")
except TradewindError as error:
    said = str(error)
try:
    os.setuid(0)
    back = True
except PermissionError:
    back = False
groups = os.getgroups()
print(json.dumps({"said": said, "uid": os.geteuid(), "back": back, "groups": groups, "home": os.environ["HOME"]}))
"""


@pytest.fixture
def seen() -> Iterator[Path]:
    """A folder that every user can see."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def left(folder: Path, python: str = "/bin/sh", **settings: Any) -> dict[str, Any]:
    """What becomes of a process that leaves root."""
    given = json.dumps({"folder": str(folder), "settings": settings, "python": python})
    done = subprocess.run([sys.executable, "-c", CHILD, given], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@as_root
@pytest.mark.slow
def test_it_becomes_a_user_of_the_system_for_good_and_takes_its_data_along(seen: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    data = seen / "data"
    (data / "runs").mkdir(parents=True)
    (data / "runs/old").write_text("x")
    (data / "link").symlink_to("/etc/passwd")
    found = left(data, user="nobody")
    assert found["said"].startswith("Started as root, this server and the programs of its users run as nobody")
    assert (found["uid"], found["back"], found["home"]) == (nobody.pw_uid, False, nobody.pw_dir)
    assert 0 not in found["groups"]
    assert {one.lstat().st_uid for one in (data, data / "runs", data / "runs/old", data / "link")} == {nobody.pw_uid}
    assert Path("/etc/passwd").stat().st_uid == 0
    # What its user has put there since then is never taken from root.
    (data / "later").write_text("x")
    left(data)
    assert (data / "later").stat().st_uid == 0


@as_root
@pytest.mark.slow
def test_what_that_user_cannot_reach_is_said(seen: Path) -> None:
    hidden = seen / "hidden"
    hidden.mkdir(mode=0o700)
    found = left(hidden / "data", user="nobody")
    assert found["said"].startswith(f"the user nobody cannot use the data folder {hidden}/data (set TRADEWIND_HOME to")
    assert "--allow-root" in found["said"]
    (hidden / "python").write_text("x")
    found = left(seen / "data", str(hidden / "python"), user="nobody")
    assert found["said"].startswith(f"the user nobody cannot read {hidden}/python")
    assert (seen / "data").stat().st_uid == 0, "what is refused changes nothing"


@as_root
@pytest.mark.slow
def test_for_this_machine_only_it_stays_root_where_the_user_cannot_reach_what_it_needs(seen: Path) -> None:
    hidden = seen / "hidden"
    hidden.mkdir(mode=0o700)
    found = left(hidden / "data")
    assert found["said"].startswith("This server runs as root, and so do the programs of its users: the user ")
    assert (found["uid"], (hidden / "data").stat().st_uid) == (0, 0)
    found = left(hidden / "data", host="0.0.0.0")
    assert "cannot use the data folder" in found["said"]
    assert not found["said"].startswith("This server")


@as_root
def test_it_stays_root_only_where_it_is_allowed(tmp_path: Path) -> None:
    assert "runs as root, and so do the programs" in leave_root(ServiceSettings(allow_root=True), tmp_path)
    with pytest.raises(InputError, match="has to be allowed"):
        leave_root(ServiceSettings(user="root"), tmp_path)
    with pytest.raises(InputError, match=r"no user ghost .*useradd"):
        leave_root(ServiceSettings(user="ghost"), tmp_path)
    assert os.geteuid() == 0


def test_another_user_stays_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert leave_root(ServiceSettings(), tmp_path) == ""
    with pytest.raises(InputError, match="only root may start a server as root"):
        leave_root(ServiceSettings(user="root"), tmp_path)


@as_root
def test_the_command_line_names_the_user(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_SERVICE_ALLOW_ROOT", "false")
    code, error = refused(capfd, "--port", "0", "--user", "ghost")
    assert (code, "no user ghost" in error) == (3, True)
