"""Commands, files and tunnels over SSH, with real servers."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.hosts import Hosts, hosts
from tests.engines.ssh import Keys, Sshd, free_port, sshd
from tests.waiting import eventually

from tradewind.deployer import ssh_connection
from tradewind.deployer.bundle import unpack
from tradewind.deployer.ssh_connection import (
    MAX_SESSIONS,
    SshConnection,
    SshSettings,
    SshTarget,
    parse_host,
    shell_line,
)
from tradewind.errors import CredentialsError, DeployError, MissingProgramError, UnreachableError
from tradewind.problem import Machine

pytestmark = pytest.mark.xdist_group("ssh")

__all__ = ["hosts", "sshd"]

_ROOM = 1 << 20


def _masters(link: SshConnection) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(link._control) in word for word in process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


Linker = Callable[..., SshConnection]


@pytest.fixture
def linked(sshd: Sshd) -> Iterator[Linker]:
    made: list[SshConnection] = []

    def make(**changes: Any) -> SshConnection:
        seconds = changes.pop("connect_seconds", 10.0)
        target = replace(SshTarget(**{"host": sshd.address, **sshd.facts}), **changes)
        made.append(SshConnection(target, connect_seconds=seconds))
        return made[-1]

    yield make
    for link in made:
        link.close()
        assert _masters(link) == []
        assert list(link._control.parent.glob(f"{link._control.name}*")) == []


def test_a_command_gets_its_words_as_they_are(linked: Linker) -> None:
    link = linked()
    words = ["a b", "$HOME", "`id`", "'quoted'", '"', "", "-n", "x;y", "new\nline", "ümläut"]
    answer = link.run(["printf", "%s|", *words])
    assert answer.stdout.decode() == "|".join(words) + "|"
    assert link.run(["cat"], stdin=bytes(range(256)) * 1000).stdout == bytes(range(256)) * 1000
    answer = link.run(["sh", "-c", "echo oh >&2; exit 3"], check=False)
    assert (answer.code, answer.stderr) == (3, b"oh\n")
    with pytest.raises(DeployError, match=r"sh on 127\.0\.0\.1: oh"):
        link.run(["sh", "-c", "echo oh >&2; exit 3"])
    assert link.run(["sh", "-c", "exit 255"], check=False).code == 255
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.3 s"):
        link.run(["sleep", "60"], timeout=0.3)


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish", "tcsh"])
def test_every_login_shell_reads_the_words_alike(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} (apt-get install {shell})")
    words = [
        "a b",
        "$HOME",
        "'quoted'",
        '"',
        "",
        "new\nline",
        "a!b",
        "!!",
        "one\\two\\\\",
        "%s",
        "ümläut\n",
        "\udcff",
        "~",
        "*",
    ]
    for given in (words, words[:5]):
        done = subprocess.run([shell, "-c", shell_line(["printf", "%s|", *given])], capture_output=True, check=False)
        assert done.stdout == os.fsencode("|".join(given) + "|"), done.stderr


@pytest.mark.parametrize("setting", ["RequestTTY force", "RemoteCommand tmux", "ControlMaster auto\nControlPath ~/%C"])
def test_the_users_own_configuration_of_terminals_does_not_count(
    linked: Linker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    (tmp_path / "config").write_text(f"Host *\n{setting}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    content = b"line\r\n\x04\x03" * 1000
    assert linked().run(["cat"], stdin=content, timeout=10.0).stdout == content


def test_one_connection_serves_many_threads(linked: Linker) -> None:
    link = linked()
    found: list[bytes] = []

    def ask() -> None:
        for _ in range(3):
            found.append(link.run(["sh", "-c", "echo $SSH_CONNECTION; sleep 0.1"]).stdout)

    threads = [threading.Thread(target=ask) for _ in range(2 * MAX_SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 * MAX_SESSIONS
    assert len(set(found)) == 1, "more than one connection"
    assert len(_masters(link)) == 1


def test_a_lost_connection_is_opened_again(linked: Linker, sshd: Sshd) -> None:
    link = linked()
    first = link.run(["sh", "-c", "echo $SSH_CONNECTION"]).stdout
    [master] = _masters(link)
    os.kill(master, 9)
    second = link.run(["sh", "-c", "echo $SSH_CONNECTION"]).stdout
    assert second != first
    sshd.stop()
    try:
        with pytest.raises(UnreachableError):
            link.run(["true"])
        with pytest.raises(UnreachableError, match=r"refuses connections.*SSH server running"):
            link.run(["true"])
    finally:
        sshd.start()
    assert link.run(["echo", "back"]).stdout == b"back\n"


def test_files_and_folders_go_there_and_come_back(linked: Linker, tmp_path: Path) -> None:
    link = linked()
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "big").write_bytes(os.urandom(3_000_000))
    link.put(tmp_path / "big", str(there / "big one"))
    link.put(b"#!/bin/sh\n", str(there / "run"), mode=0o700)
    assert (there / "big one").read_bytes() == (tmp_path / "big").read_bytes()
    assert os.access(there / "run", os.X_OK)
    back: list[bytes] = []
    link.receive(["cat", str(there / "big one")], lambda stream: back.append(stream.read()))
    assert back == [(tmp_path / "big").read_bytes()]
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a").write_text("1")
    (folder / "in").symlink_to("sub/a")
    (folder / "out").symlink_to("/etc/passwd")
    for _ in range(2):
        link.put_folder(folder, str(there / "folder"))
    assert (there / "folder/sub/a").read_text() == "1"
    assert len(list((there / "folder").iterdir())) == 3
    link.receive(
        ["tar", "cf", "-", "-C", str(there / "folder"), "."],
        lambda stream: unpack(stream, tmp_path / "folder-back", limit_bytes=_ROOM, lenient=True),
    )
    assert (tmp_path / "folder-back/in").read_text() == "1"
    assert not (tmp_path / "folder-back/out").is_symlink()
    assert sorted(path.name for path in there.iterdir()) == ["big one", "folder", "run"]


def test_what_a_killed_sender_has_sent_gets_no_name(linked: Linker, tmp_path: Path) -> None:
    """To the other side its end looks like that of a sender that is ready."""
    link = linked()
    sent = [
        (["sh", "-c", ssh_connection._PUT, "put", str(tmp_path / "file"), "600", "1000"], bytes(500), 1),
        (["sh", "-c", ssh_connection._PUT, "put", str(tmp_path / "file"), "600", "1000"], b"", 1),
        (
            ["sh", "-c", ssh_connection._PUT_FOLDER, "put", str(tmp_path / "folder"), str(tmp_path / "part")],
            bytes(10240),
            0,
        ),
    ]
    for argv, content, code in sent:
        with link.session(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            _, errors = process.communicate(content, timeout=30)
        assert process.returncode == code
        assert (f"{len(content)} of 1000 bytes have come" in errors.decode()) == bool(code)
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_a_transfer_that_fails_leaves_nothing(linked: Linker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = linked()
    back: list[bytes] = []
    with pytest.raises(DeployError, match="No such file"):
        link.receive(["cat", str(tmp_path / "missing")], lambda stream: back.append(stream.read()))
    assert back == [b""]
    with pytest.raises(DeployError, match=r"put|[Nn]o such file|[Dd]irectory"):
        link.put(b"x", str(tmp_path / "no/such/folder"))
    (tmp_path / "large").write_bytes(bytes(20_000))
    with pytest.raises(DeployError, match="too large"):
        link.receive(
            ["tar", "cf", "-", "-C", str(tmp_path), "."],
            lambda stream: unpack(stream, tmp_path / "x", limit_bytes=10_000, lenient=True),
        )
    with pytest.raises(UnreachableError, match="longer than"):
        link.receive(["sleep", "60"], lambda stream: None, timeout=0.3)
    monkeypatch.setattr(ssh_connection, "_PUT", "exec sleep 60")
    with pytest.raises(UnreachableError, match="longer than"):
        link.put(b"x", "y", timeout=0.3)
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_there_is_said_plainly(linked: Linker, tmp_path: Path) -> None:
    link = linked()
    small, big = tmp_path / "small", tmp_path / "big"
    small.mkdir()
    big.write_bytes(os.urandom(3 << 20))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=True)
    try:
        for send in (link.put, link.put_folder):
            with pytest.raises(DeployError, match=r"disk of 127\.0\.0\.1 is full"):
                send(big if send == link.put else tmp_path, str(small / "x"))
            assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_socket_there_is_one_here(linked: Linker, tmp_path: Path) -> None:
    link = linked()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket() as port:
        server.bind(str(path))
        port.bind(("127.0.0.1", 0))
        for listening, remote in ((server, str(path)), (port, f"127.0.0.1:{port.getsockname()[1]}")):
            listening.listen()
            local = link.forward_socket(remote)
            assert link.forward_socket(remote) == local
            assert _talk(local, listening) == b"hello"
            assert link._master is not None
            os.kill(link._master, 9)
            eventually(lambda: not _masters(link))
            # The same path leads there again.
            assert link.forward_socket(remote) == local
            assert _talk(local, listening) == b"hello"


def _talk(local: Path, server: socket.socket) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(local))
        client.sendall(b"hello")
        accepted, _ = server.accept()
        with accepted:
            return accepted.recv(5)


def test_forwarding_may_be_forbidden(tmp_path: Path) -> None:
    server = Sshd(tmp_path, ["AllowStreamLocalForwarding no", "AllowTcpForwarding no"])
    server.start()
    link = SshConnection(SshTarget(server.address, **server.facts))
    try:
        local = link.forward_socket("/no/socket")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(local))
            assert client.recv(1) == b""
    finally:
        link.close()
        server.stop()


def test_each_refusal_is_an_error_of_its_own(linked: Linker, tmp_path: Path) -> None:
    other = Keys(tmp_path / "other")
    empty, changed = tmp_path / "empty", tmp_path / "changed"
    empty.write_text("")
    port = linked().target.port
    changed.write_text(f"[127.0.0.1]:{port} {other.public}\n")
    rows: list[tuple[dict[str, Any], type[DeployError], str]] = [
        ({"known_hosts": str(empty)}, CredentialsError, f"host key is not known.*-p {port} .*by hand"),
        ({"known_hosts": str(changed)}, CredentialsError, "changed.*ssh-keygen -R"),
        ({"identity": str(other.client)}, CredentialsError, "does not let us in.*identity"),
        ({"identity": str(tmp_path / "no-key")}, CredentialsError, "no private key"),
        ({"identity": str(empty)}, CredentialsError, r"does not let us in|cannot be used"),
        ({"port": (refused := free_port())}, UnreachableError, f"refuses connections on port {refused}"),
        ({"host": "no-such-host.invalid"}, UnreachableError, "no host named no-such-host.invalid"),
        ({"host": "192.0.2.1", "connect_seconds": 1.0}, UnreachableError, "192.0.2.1"),
        ({"host": "::1", "jump": "nobody@[::1]:9"}, UnreachableError, "refuse|cannot|closed"),
    ]
    for changes, kind, words in rows:
        with pytest.raises(DeployError, match=words) as caught:
            linked(**changes).run(["true"])
        assert type(caught.value) is kind, (changes, caught.value)


def test_advice_helps_when_it_is_typed(linked: Linker, sshd: Sshd, tmp_path: Path) -> None:
    """Each is typed as it stands in the error, and the same connection is tried again."""
    port = sshd.port
    known, key = tmp_path / "known", tmp_path / "a key"
    key.write_bytes(sshd.keys.client.read_bytes())
    key.chmod(0o600)
    target = {"known_hosts": str(known), "identity": str(key)}

    def advised(words: str) -> str:
        with pytest.raises(CredentialsError, match=words) as caught:
            linked(**target).run(["true"])
        assert caught.value.hint
        return caught.value.hint

    known.write_text(f"[127.0.0.1]:{port} {Keys(tmp_path / 'other').public}\n")
    subprocess.run(shlex.split(advised("has changed").rpartition(": ")[2]), check=True, capture_output=True)
    assert known.read_text() == ""
    by_hand = shlex.split(advised("is not known").partition(" once by hand")[0])
    # ssh asks a person whether the key is right; here the answer is an option.
    words = [by_hand[0], "-o", "StrictHostKeyChecking=accept-new", "-i", str(key), *by_hand[1:], "true"]
    subprocess.run(words, check=True, capture_output=True, timeout=30)
    assert linked(**target).run(["echo", "in"]).stdout == b"in\n"
    key.chmod(0o644)
    linked().close()
    subprocess.run(shlex.split(advised("others may read")), check=True)
    assert linked(**target).run(["echo", "in"]).stdout == b"in\n"


def test_a_new_machines_key_is_taken_once(linked: Linker, tmp_path: Path) -> None:
    known = tmp_path / "known"
    assert linked(known_hosts=str(known), accept_new=True).run(["echo", "in"]).stdout == b"in\n"
    assert "ssh-ed25519" in known.read_text()
    assert linked(known_hosts=str(known)).run(["echo", "in"]).stdout == b"in\n"


def test_a_jump_uses_the_same_key(linked: Linker, sshd: Sshd) -> None:
    hop = f"127.0.0.1:{sshd.port}"
    for jump in (hop, f"{hop},{hop}"):
        assert linked(jump=jump).run(["echo", "far"]).stdout == b"far\n"


def test_a_missing_program_is_said(linked: Linker, monkeypatch: pytest.MonkeyPatch) -> None:
    link = linked()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        with pytest.raises(MissingProgramError, match="apt-get install openssh-client"):
            link.run(["true"])


def test_a_host_that_is_cut_off_ends_every_call(hosts: Hosts) -> None:
    link = SshConnection(SshTarget(hosts.addresses["h1"], **hosts.facts), connect_seconds=2)
    try:
        assert link.run(["uname", "-n"]).stdout == b"h1\n"
        hosts.cut("h1")
        began = time.monotonic()
        with pytest.raises(UnreachableError):
            link.run(["uname", "-n"], timeout=1.0)
        assert time.monotonic() - began < 10
        hosts.mend("h1")
        eventually(lambda: _answers(link))
    finally:
        hosts.mend("h1")
        link.close()
    assert _masters(link) == []


def _answers(link: SshConnection) -> bool:
    try:
        return link.run(["uname", "-n"], timeout=3.0).stdout == b"h1\n"
    except UnreachableError:
        return False


def test_a_killed_process_leaves_no_command_behind(sshd: Sshd) -> None:
    code = f"""
import os, sys
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
link = SshConnection(SshTarget({sshd.address!r}, **{sshd.facts!r}))
link.forward_socket("/tmp/x")
print(link._control, link._anchor.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == -9
    control, anchor = done.stdout.split()
    eventually(lambda: not psutil.pid_exists(int(anchor)))
    # The connection itself waits a minute for another command, and then ends.
    subprocess.run(["ssh", "-S", control, "-O", "exit", "x"], capture_output=True, check=False, timeout=30)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("h", ("", None, "h")),
        ("u@h", ("u", None, "h")),
        ("u@h:22", ("u", 22, "h")),
        ("10.0.0.1:2022", ("", 2022, "10.0.0.1")),
        ("::1", ("", None, "::1")),
        ("u@[fe80::1%eth0]:22", ("u", 22, "fe80::1%eth0")),
        ("[::1]", ("", None, "::1")),
        ("ssh://h", ("", None, "h")),
        ("ssh://h/", ("", None, "h")),
        ("ssh://me@127.0.0.1:1", ("me", 1, "127.0.0.1")),
        ("SSH://me@[::1]:2222", ("me", 2222, "::1")),
        ("ssh://me%40corp@h", ("me@corp", None, "h")),
    ],
)
def test_hosts_are_read(text: str, wanted: tuple[str, int | None, str]) -> None:
    assert parse_host(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "u@", "-oProxyCommand=x", "u@-x", "h:x", "h:0", "h:70000", "a b", "h;id", "$(id)", "[::1", "[::1]22", "h/p"],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no host|no port"):
        parse_host(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssh://", "no host"),
        ("@h", "no host"),
        ("@@h", "no host"),
        ("*", "no host"),
        ("~", "no host"),
        ("ssh://h?x", "no host"),
        ("ssh://h#x", "no host"),
        ("ssh://-x", "no host"),
        ("ssh://h:x", "no host"),
        ("ssh://h/path", "path"),
        ("http://h", "http:// is no way"),
        ("sftp://me@h", "sftp:// is no way"),
        ("me:geheim@h", "password"),
        ("ssh://me:geheim@h", "password"),
        ("ssh://me:geheim@h/path", "password"),
    ],
)
def test_an_address_that_names_no_host_is_refused_without_its_password(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_host(text)
    assert "geheim" not in str(refused.value)


def test_a_host_that_a_setting_names_has_the_rest_of_its_facts_from_the_settings() -> None:
    given = SshSettings(user="other", port=22, identity="key")
    assert SshTarget.named("ssh://me@h:2222", given) == SshTarget("h", "me", 2222, "key")
    assert SshTarget.named("h", given) == SshTarget("h", "other", 22, "key")


def test_hosts_to_go_through_are_read_with_the_settings() -> None:
    assert SshSettings(jump="ssh://me@a:22,b").jump
    with pytest.raises(ValueError, match="http:// is no way"):
        SshSettings(jump="a,http://b")


def test_settings_and_machines_make_a_target() -> None:
    settings = SshSettings(user="u", port=2022)
    assert settings.facts() == {"user": "u", "port": 2022}
    machine = Machine("i", "10.0.0.1", {"ssh": {"user": "v", "later": 1}})
    target = SshTarget.of(machine, settings.facts())
    assert (target.host, target.user, target.port) == ("10.0.0.1", "v", 2022)
    assert SshTarget(**target.to_json()) == target
