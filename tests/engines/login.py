"""A login of this machine that is not root's, for an SSH server of its own."""

from __future__ import annotations

import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines import require
from tests.engines.ssh import Sshd

USER = "tradewind-test"


@pytest.fixture(scope="module")
def login() -> Iterator[Sshd]:
    """A server that lets in a user without rights; ``facts`` has the user, whose home is ``home`` below ``folder``."""
    require("sshd", "ssh", "ssh-keygen", "useradd", "userdel", package="openssh-server openssh-client passwd")
    # sshd reads the keys as that user, for whom the folders of tests are closed.
    folder = Path(tempfile.mkdtemp(prefix="tradewind-login-"))
    folder.chmod(0o755)
    home = folder / "home"
    _remove()
    # Without a password, but not locked: sshd lets nobody in whose account is locked.
    words = ["useradd", "--create-home", "--home-dir", str(home), "--shell", "/bin/sh", "--password", "*", USER]
    subprocess.run(words, check=True, timeout=30)
    server = Sshd(folder)
    server.facts["user"] = USER
    server.start()
    try:
        yield server
    finally:
        server.stop()
        _remove()
        shutil.rmtree(folder, ignore_errors=True)


def _remove() -> None:
    """Remove the user, also one that killed tests have left."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return
    subprocess.run(["userdel", "--force", USER], check=False, timeout=30, capture_output=True)
