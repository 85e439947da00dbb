"""Secrets reach the job, and nothing else."""

from __future__ import annotations

import base64
import json
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from tradewind.cli.app import run
from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import DeployError, MissingProgramError
from tradewind.testing.secrets import SECRET, assert_kept_nowhere, found_in, in_command_lines, spellings

JOB = """\
name: sort
job:
  command: [sh, -c, {script!r}]
  secrets: {{KEY: {reference!r}}}
space: {{level: 1..9}}
objective: {{minimise: runtime}}
budget: {{trials: 2}}
searcher: random
deploy:
  retries: 0
  results: kept
  places: {{"webdavs://nowhere.example": {{user: me, password: "env:MY_KEY"}}}}
  hooks: {{before_submitting: env, on_error: env}}
"""

GOT_IT = f'test "$(printf %s "$KEY" | wc -c)" -eq {len(SECRET.encode())}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "reference", "code"),
    [
        (GOT_IT, "env:MY_KEY", 0),
        (GOT_IT, "file:../elsewhere/key", 0),
        (f"{GOT_IT} && exit 3", "env:MY_KEY", 6),
        ("echo half; exec no-such-program", "env:MY_KEY", 6),
        (GOT_IT, "env:NO_SUCH_KEY", 3),
        (GOT_IT, "file:../elsewhere/no-key", 3),
    ],
    ids=["env", "file", "failing", "missing-program", "no-env", "no-file"],
)
def test_a_secret_is_kept_nowhere(
    script: str,
    reference: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "key").write_text(SECRET + "\n")
    (folder / "job.yaml").write_text(JOB.format(script=script, reference=reference))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MY_KEY", SECRET)
    assert run(["tune", "job.yaml", "--quiet"]) == code
    run(["run", "job.yaml", "--set", "level=2", "--json"])
    commands = (
        ["status", "sort", "--json"],
        ["logs", "sort", "0"],
        ["logs", "sort", "0", "--json"],
        ["report", "sort", "--html", "report.html"],
        ["export", "sort", "--format", "records", "--output", "records.jsonl"],
        ["export", "sort", "--format", "csv"],
        ["down", "sort", "--yes"],
        ["reap", "--dry-run", "--json"],
        ["doctor", "--json"],
    )
    for words in commands if reference == "env:MY_KEY" and code == 0 else commands[:1]:
        run(words)
    # A hook gets the whole environment of this process, and wrote it down: that is its own doing.
    for log in (tmp_path / "home").rglob("hooks.log"):
        lines = [line for line in log.read_bytes().splitlines() if not line.startswith(b"MY_KEY=")]
        log.write_bytes(b"\n".join(lines))
    out, err = capfd.readouterr()
    assert_kept_nowhere(SECRET, tmp_path / "home", folder, texts=out + err)


@pytest.mark.slow
def test_no_process_has_it_as_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(JOB.format(script="touch running; sleep 1", reference="env:MY_KEY"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", SECRET)
    seen: list[list[int]] = []

    def watch() -> None:
        while not (tmp_path / "running").exists():
            if ended.wait(0.02):
                return
        seen.append(in_command_lines(SECRET))

    ended = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    assert run(["run", "job.yaml", "--set", "level=1"]) == 0
    ended.set()
    thread.join()
    assert seen == [[]]


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", '{"x": "'])
def test_the_search_finds_what_is_there(tmp_path: Path, before: str) -> None:
    for name, content in (
        ("plain", before + SECRET),
        ("json", json.dumps({"a": before + SECRET})),
        ("base64", base64.b64encode((before + SECRET + " after").encode()).decode()),
    ):
        (tmp_path / name).write_text(content)
    (tmp_path / "other").write_text("nothing")
    assert {path.name for path in found_in(SECRET, tmp_path)} == {"plain", "json", "base64"}
    with pytest.raises(AssertionError, match="file"):
        assert_kept_nowhere(SECRET, tmp_path)
    with pytest.raises(AssertionError, match="printed"):
        assert_kept_nowhere(SECRET, texts=f"it is {SECRET}")
    assert all(len(spelling) > 8 for spelling in spellings(SECRET))


def keyring(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """A keyring that answers so."""
    errors = types.ModuleType("keyring.errors")
    errors.KeyringError = RuntimeError  # type: ignore[attr-defined]
    made = types.ModuleType("keyring")

    def get_password(service: str, name: str) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        found: str | None = answer.get((service, name))
        return found

    made.get_password = get_password  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", made)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)


def test_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring(monkeypatch, {("my/cloud", "me"): SECRET})
    assert resolve_secrets({"KEY": "keyring:my/cloud/me"}) == {"KEY": SECRET}
    with pytest.raises(DeployError, match=r"has no my/cloud/you \(keyring set my/cloud you\)"):
        resolve_secrets({"KEY": "keyring:my/cloud/you"})
    keyring(monkeypatch, RuntimeError(SECRET))
    with pytest.raises(DeployError, match="cannot be read") as caught:
        resolve_secrets({"KEY": "keyring:my/cloud/me"})
    assert SECRET not in str(caught.value)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MissingProgramError, match="needs the package keyring"):
        resolve_secrets({"KEY": "keyring:my/cloud/me"})


def test_a_real_keyring_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("keyring")
    from keyring.backends import null

    before = module.get_keyring()
    monkeypatch.setattr(null.Keyring, "get_password", lambda self, service, name: SECRET if name == "me" else None)
    module.set_keyring(null.Keyring())  # type: ignore[no-untyped-call]
    try:
        assert resolve_secrets({"KEY": "keyring:cloud/me"}) == {"KEY": SECRET}
    finally:
        module.set_keyring(before)


def test_what_is_no_reference_is_not_repeated() -> None:
    with pytest.raises(DeployError) as caught:
        resolve_secrets({"KEY": SECRET})
    assert SECRET not in str(caught.value)
