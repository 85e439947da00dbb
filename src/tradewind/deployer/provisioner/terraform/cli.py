"""Drives ``terraform`` or ``tofu``: finds the program, prepares modules, and runs one command for one run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic, init_error, template_error
from tradewind.deployer.provisioner.terraform.run_folder import FOLDER_VARIABLE, TerraformRunFolder
from tradewind.errors import DeployError, MissingProgramError

_INIT_SECONDS = 600.0
_LOOK_SECONDS = 0.2
_OVERRIDE = 'terraform {\n  backend "local" {}\n}\n'
_OVERRIDE_NAME = "tradewind_override.tf"
_LOG = "terraform.jsonl"
_LEFT_OUT = (".terraform", ".git")


@dataclass(frozen=True, slots=True)
class TerraformResult:
    """Result of a command of Terraform.

    Attributes:
        code: Its exit code.
        diagnostics: What it complained of.
        outputs: The values of the module's outputs.
        applying: True when it had begun to change things.
        late: True when it was stopped, because it took too long or was given up.
    """

    code: int
    diagnostics: tuple[TerraformDiagnostic, ...] = ()
    outputs: Mapping[str, Any] | None = None
    applying: bool = False
    late: bool = False

    @property
    def cut_off(self) -> bool:
        """True when it did not come to an end of its own: it may have created what its state does not know."""
        return self.late or (self.code != 0 and not self.diagnostics)


def find_terraform(wanted: str = "auto") -> str:
    """The path of ``terraform`` or ``tofu``.

    Args:
        wanted: ``auto``, a name or a path.

    Raises:
        MissingProgramError: It is not there.
    """
    names = ("terraform", "tofu") if wanted == "auto" else (wanted,)
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise MissingProgramError(
            f"there is no {' or '.join(names)} program",
            hint="install OpenTofu or Terraform, or name it in the setting program of provisioner terraform",
        )
    return found


class TerraformCli:
    """One installed ``terraform`` or ``tofu``.

    Args:
        wanted: ``auto``, a name or a path.
        folder: Where initialised modules and the shared plugin cache are kept.
        stop_seconds: How long a command may take to stop after it was asked to.
        given_up: Whether what it is at is not wanted any more: it is stopped then.

    Raises:
        MissingProgramError: It is not there.
    """

    def __init__(
        self, wanted: str, folder: Path, stop_seconds: float, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        self.path = find_terraform(wanted)
        self._folder = folder
        self._stop_seconds = stop_seconds
        self._given_up = given_up

    def prepare(self, sources: Sequence[Path]) -> Path:
        """An initialised copy of a module, made once for each content; providers are downloaded once for all.

        Args:
            sources: Folders and files whose contents make the module; later ones win.

        Raises:
            MissingProgramError: A provider cannot be had.
            DeployError: The template is wrong; the message has file and line. Or it was given up.
        """
        digest = hashlib.sha256(f"{self.path}\0{os.environ.get('TF_CLI_CONFIG_FILE', '')}".encode())
        files = dict(sorted(_files(sources).items()))
        for name, path in files.items():
            digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
        modules = self._folder / "modules"
        target = modules / digest.hexdigest()[:16]
        modules.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A cache of plugins is not safe for several inits at a time.
        with (modules / "init.lock").open("a") as lock:
            while not _locked(lock):
                self._check_wanted()
                time.sleep(_LOOK_SECONDS)
            if not _initialised(target):
                shutil.rmtree(target, ignore_errors=True)
                self._initialise(target, files)
        return target

    def _initialise(self, target: Path, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
        # Whatever backend the module names: the state of each run is a file of its own.
        (target / _OVERRIDE_NAME).write_text(_OVERRIDE)
        done = self._short(target, "init", "-input=false", "-no-color")
        checked = self._short(target, "validate", "-json", "-no-color")
        wrong = _diagnostics_of_validate(checked.stdout)
        # Without an init, validate complains of missing providers, and, with places, of what is wrong in the template.
        in_template = [each for each in wrong if each.file and (done.returncode == 0 or not each.about_plugins)]
        if in_template or (done.returncode == 0 and checked.returncode):
            raise template_error(in_template or wrong)
        if done.returncode:
            raise init_error(self.path, done.stderr.decode(errors="replace"))
        (target / ".initialised").touch()

    def _check_wanted(self) -> None:
        if self._given_up():
            raise DeployError("making the machines was given up")

    def _short(self, folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            process = subprocess.Popen(
                [self.path, *words],
                cwd=folder,
                env=self._environment(folder / ".terraform"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise MissingProgramError(f"{self.path} cannot be started: {error.strerror}") from error
        until = time.monotonic() + _INIT_SECONDS
        with process:
            while True:
                try:
                    out, err = process.communicate(timeout=_LOOK_SECONDS)
                    return subprocess.CompletedProcess(words, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    if time.monotonic() < until and not self._given_up():
                        continue
                # It downloads and reads, and makes nothing that anyone pays for.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                self._check_wanted()
                raise DeployError(f"{self.path} {words[0]} did not end within {_INIT_SECONDS:g} s")

    def _environment(self, data: Path) -> dict[str, str]:
        """The caller's environment, with credentials and ``TF_VAR_*``, without what would change the commands."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TF_CLI_ARGS") and name not in ("TF_WORKSPACE", "TF_LOG", "TF_DATA_DIR")
        }
        cache = self._folder / "modules" / "plugins"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours = {
            "TF_DATA_DIR": str(data),
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "CHECKPOINT_DISABLE": "1",
            "TF_PLUGIN_CACHE_DIR": os.environ.get("TF_PLUGIN_CACHE_DIR", str(cache)),
        }
        return {**kept, **ours}

    def settle(self, folder: TerraformRunFolder, module: Path) -> None:
        """Put a copy of an initialised module into a run's folder: what made the machines also destroys them."""
        for name, path in _files([module]).items():
            (folder.path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(path, folder.path / name)
        link = folder.path / ".terraform"
        if not link.is_symlink():
            # With it, the same commands work by hand in this folder.
            link.symlink_to(module / ".terraform")

    def run(self, folder: TerraformRunFolder, lock: int, verb: str, seconds: float) -> TerraformResult:
        """Run ``apply`` or ``destroy`` in a run's folder, and wait for it.

        It is in a session of its own, so that Ctrl-C at the terminal does not reach it, writes to a file, and holds the
        run's lock: when this process is killed it goes on, and others wait for it.

        Args:
            folder: The run's.
            lock: The number of its lock.
            verb: ``apply`` or ``destroy``.
            seconds: How long it may take before it is stopped, unless it is given up before.
        """
        log = folder.path / _LOG
        words = [self.path, verb, "-json", "-input=false", "-auto-approve"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                words,
                cwd=folder.path,
                env={**self._environment(folder.path / ".terraform"), FOLDER_VARIABLE: str(folder.path)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        until, late = time.monotonic() + seconds, False
        while process.poll() is None and not late:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
            late = process.poll() is None and (time.monotonic() > until or self._given_up())
        if late:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            try:
                process.wait(self._stop_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        folder.stop(0)  # a provider may outlive a killed terraform
        return read_log(log, process.returncode, late=late)


def read_log(log: Path, code: int, *, late: bool = False) -> TerraformResult:
    """Read the lines that Terraform wrote with ``-json``; lines that are cut short are skipped."""
    diagnostics: list[TerraformDiagnostic] = []
    outputs: dict[str, Any] | None = None
    applying = False
    for line in log.read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        match event.get("type"):
            case "diagnostic" if event["diagnostic"].get("severity") == "error":
                diagnostics.append(TerraformDiagnostic.from_json(event["diagnostic"]))
            case "apply_start":
                applying = True
            case "outputs":
                outputs = {k: v["value"] for k, v in event["outputs"].items() if "value" in v}
    return TerraformResult(code, tuple(diagnostics), outputs, applying, late)


def _locked(file: IO[str]) -> bool:
    """True when a file's lock is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_COMMENT = re.compile(r"/\*.*?\*/|^\s*(?:#|//)[^\n]*", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"^\s*variable\s+\"?([\w-]+)\"?\s*\{", re.MULTILINE)


def declared_variables(module: Path) -> frozenset[str]:
    """Find the names of the variables that a module declares.

    Args:
        module: Its folder; modules below it have variables of their own.
    """
    found: set[str] = set()
    for file in module.glob("*.tf"):
        found |= set(_VARIABLE.findall(_COMMENT.sub("", file.read_text(encoding="utf-8", errors="replace"))))
    for file in module.glob("*.tf.json"):
        # What is no JSON, Terraform itself has refused before.
        with suppress(ValueError):
            content = json.loads(file.read_bytes())
            blocks = content.get("variable", {}) if isinstance(content, dict) else {}
            for block in blocks if isinstance(blocks, list) else [blocks]:
                found |= set(block)
    return frozenset(found)


def _files(sources: Sequence[Path]) -> dict[str, Path]:
    """Name below the module -> file, without what Terraform itself leaves in a folder."""
    found: dict[str, Path] = {}
    for source in sources:
        if source.is_file():
            found[source.name] = source
            continue
        for path in source.rglob("*"):
            inside = path.relative_to(source)
            mine = inside.name in (".initialised", "terraform.tfstate", "terraform.tfstate.backup")
            if path.is_file() and not mine and not any(part in _LEFT_OUT for part in inside.parts):
                found[inside.as_posix()] = path
    return found


def _initialised(target: Path) -> bool:
    """True when a module was initialised and its providers are still where its links point to."""
    if not (target / ".initialised").exists():
        return False
    return all(path.exists() for path in (target / ".terraform").rglob("*"))


def _diagnostics_of_validate(stdout: bytes) -> list[TerraformDiagnostic]:
    try:
        found = json.loads(stdout)["diagnostics"]
    except (ValueError, KeyError, TypeError):
        return []
    return [TerraformDiagnostic.from_json(each) for each in found if each.get("severity") == "error"]
