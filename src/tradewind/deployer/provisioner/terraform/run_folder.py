"""The folder of one run of the terraform provisioner on this machine: record, module, state and keys."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tradewind.deployer.provisioner.base import Cluster
from tradewind.errors import DeployError
from tradewind.problem import Offer
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.dependencies import find_program

FOLDER_VARIABLE = "TRADEWIND_TERRAFORM_FOLDER"
"""The environment variable by which the processes of a run's terraform are known."""

_STATE = "terraform.tfstate"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TURN_SECONDS = 0.05
_RETURNED_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class TerraformRunRecord:
    """Facts about the machines of a run; they are written before anything is created.

    Attributes:
        run_id: The run.
        owner: Who pays.
        expires: When anyone may destroy the machines, in seconds since the epoch.
        offer: The machines, as `Offer.to_json` has them.
        region: Where they are made.
        provider: Whose they are (``aws``, ``gcp``, ``azure``, or another of a module of the user's own).
        applying: True while Terraform makes them. A record that stays so is of a creation that was cut off: there may
            be machines that Terraform's state does not know.
        started: When making them began.
        made: When Terraform had made them, or None.
        ready: When they answered, or None.
        reason: Why they could not be made, or empty.
        machines: What the module says of them.
        account: The account, subscription or project that they are in, or empty where that is not known.
        ended: When Terraform had destroyed what its state has, but the provider could not be asked what is left.
    """

    run_id: str
    owner: str
    expires: float
    offer: Mapping[str, Any]
    region: str
    provider: str
    applying: bool = False
    started: float = 0.0
    made: float | None = None
    ready: float | None = None
    reason: str = ""
    machines: tuple[Mapping[str, Any], ...] = field(default=())
    account: str = ""
    ended: float | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TerraformRunRecord:
        """The record of a document; keys of newer versions are ignored."""
        known = {k: v for k, v in document.items() if k in cls.__dataclass_fields__}
        return replace(cls(**known), machines=tuple(known.get("machines", ())))

    @classmethod
    def of(cls, cluster: Cluster) -> TerraformRunRecord:
        """The record of machines that no folder here knows."""
        offer = {"provider": "", "instance_type": "", "vcpu": 0, "memory_gib": 0, "price_per_hour": 0}
        region, provider = cluster.data.get("region", ""), cluster.data.get("provider", "")
        return cls(cluster.run_id, cluster.owner, cluster.expires or 0.0, offer, region, provider)

    @property
    def nodes(self) -> int:
        """Number of machines that there should be."""
        return Offer.from_json(self.offer).nodes


class TerraformRunFolder:
    """The folder of one run.

    Args:
        base: The folder of all runs.
        run_id: The run.

    Attributes:
        path: The folder.
        returned: The file that stays when the folder has gone because all that it knew was given back.
    """

    def __init__(self, base: Path, run_id: str) -> None:
        name = run_id if _PLAIN.fullmatch(run_id) else "run-" + hashlib.sha256(run_id.encode()).hexdigest()[:32]
        self.run_id = run_id
        self.path = base / name
        self.returned = base / f".{name}.returned"
        self._lock = base / f".{name}.lock"

    @property
    def state(self) -> Path:
        """Terraform's state."""
        return self.path / _STATE

    @property
    def identity(self) -> Path:
        """The private key that logs in to the machines."""
        return self.path / "login_key"

    @property
    def known_hosts(self) -> Path:
        """The machines' host key, which was made before they were."""
        return self.path / "known_hosts"

    def create(self, record: TerraformRunRecord) -> TerraformRunRecord:
        """Make the folder, and keep its first record."""
        self.returned.unlink(missing_ok=True)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.write(record)

    def read(self) -> TerraformRunRecord | None:
        """The record, or None where there is none."""
        try:
            return TerraformRunRecord.from_json(json.loads((self.path / "run.json").read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise DeployError(f"{self.path / 'run.json'} cannot be read: {error}") from error

    def write(self, record: TerraformRunRecord) -> TerraformRunRecord:
        """Keep a record, whole or not at all; in a folder that is there.

        Raises:
            FileNotFoundError: The folder is gone, and the machines with it.
        """
        write_private(self.path / "run.json", json.dumps(asdict(record), indent=1).encode())
        return record

    def kinds(self) -> set[str]:
        """The types of what Terraform's state says is there; ``?`` among them when it cannot be read."""
        try:
            document = json.loads(self.state.read_bytes())
        except FileNotFoundError:
            return set()
        except (OSError, ValueError):
            return {"?"}
        resources = document.get("resources", [])
        return {each["type"] for each in resources if each.get("mode") == "managed" and each.get("instances")}

    def public_keys(self) -> dict[str, str]:
        """The keys of the run, made at the first call, as the variables of a module.

        Raises:
            MissingProgramError: There is no ssh-keygen.
        """
        host = self.path / "host_key"
        for path in (self.identity, host):
            if not path.with_suffix(".pub").exists():
                _make_key(path, f"tradewind-{self.run_id}")
        host_public = host.with_suffix(".pub").read_text().strip()
        # The file is this run's alone: whatever address its machines get, they have this key.
        write_private(self.known_hosts, f"* {host_public}\n".encode())
        return {
            "login_key_public": self.identity.with_suffix(".pub").read_text().strip(),
            "host_key_public": host_public,
            "host_key_private": host.read_text(),
        }

    @contextmanager
    def locked(self, seconds: float, given_up: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Keep others from working on the run; the lock is held until the last process that has its number is gone.

        Args:
            seconds: How long to wait for others.
            given_up: Whether to wait no longer.

        Raises:
            DeployError: Others are at it for longer than that.
        """
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + seconds
        while True:
            number = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(number, self._lock):
                    break
            except BlockingIOError:
                pass
            os.close(number)
            if time.monotonic() > until or given_up():
                raise DeployError(f"another process works on the machines of run {self.run_id}")
            time.sleep(_TURN_SECONDS)
        try:
            yield number
        finally:
            os.close(number)

    def processes(self) -> list[int]:
        """The numbers of the living processes of the run's terraform, its leader first."""
        wanted = f"{FOLDER_VARIABLE}={self.path}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return sorted(found, key=lambda pid: (not _leads(pid), pid))

    def stop(self, seconds: float) -> None:
        """End the run's terraform: it is asked to stop and write its state, and killed when it does not in time."""
        until = time.monotonic() + seconds
        asked = False
        while pids := self.processes():
            if not _leads(pids[0]) or time.monotonic() > until:
                # Providers outlive a killed terraform, and would go on creating.
                for pid in pids:
                    _signal(pid, signal.SIGKILL)
            elif not asked:
                # To the leader alone: it tells its providers.
                _signal(pids[0], signal.SIGINT)
                asked = True
            time.sleep(_TURN_SECONDS)

    def wait(self, seconds: float, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until no terraform works on the run; what a killed one has left behind is ended."""
        until = time.monotonic() + seconds
        while (pids := self.processes()) and time.monotonic() < until and not given_up():
            if not _leads(pids[0]):
                self.stop(0)
            time.sleep(_TURN_SECONDS)

    def remove(self) -> None:
        """Remove the folder of machines that are gone, at once as others see it."""
        self.returned.touch()
        oldest = time.time() - _RETURNED_SECONDS
        for path in self._lock.parent.glob(".*.returned"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
        gone = self._lock.with_suffix(".gone")
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        self._lock.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    write_atomically(path, content, mode=0o600)


def find_keygen() -> str:
    """The path of ``ssh-keygen``.

    Raises:
        MissingProgramError: There is none.
    """
    return find_program("ssh-keygen", "install openssh-client")


def _make_key(path: Path, comment: str) -> None:
    program = find_keygen()
    # A half-made pair of an earlier process would be asked about.
    path.unlink(missing_ok=True)
    words = [program, "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    done = subprocess.run(words, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise DeployError(f"no key could be made: {done.stderr.decode(errors='replace').strip()}")


def _same_file(number: int, path: Path) -> bool:
    """False when the file was removed, and perhaps made anew, while its lock was waited for."""
    try:
        there, held = path.stat(), os.fstat(number)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
