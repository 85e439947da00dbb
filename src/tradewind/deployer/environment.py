"""The environment variables of a job, the same with every runner, and the secrets among them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tradewind.deployer.checkpoints import FOLDER as CHECKPOINT
from tradewind.errors import DeployError, MissingProgramError, PrerequisiteError
from tradewind.problem import RunRequest
from tradewind.utils.dependencies import install_command
from tradewind.utils.paths import expand

METRICS = "metrics.jsonl"
OUTPUTS = "outputs"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def job_environment(request: RunRequest, folder: Path | str) -> dict[str, str]:
    """The ``TRADEWIND_*`` variables of a run.

    Args:
        request: The run.
        folder: Its folder as the job sees it (a container may have it elsewhere than this machine).
    """
    variables = {
        "TRADEWIND_RUN_ID": request.run_id,
        "TRADEWIND_OWNER": request.owner,
        "TRADEWIND_STUDY": request.env.get("TRADEWIND_STUDY", request.owner),
        "TRADEWIND_METRICS": f"{folder}/{METRICS}",
        "TRADEWIND_OUTPUTS": f"{folder}/{OUTPUTS}",
        "TRADEWIND_INPUTS": f"{folder}/inputs",
        "TRADEWIND_NODES": str(request.offer.nodes),
        "TRADEWIND_FRACTION": repr(request.fidelity),
    }
    if request.checkpoint is not None:
        variables["TRADEWIND_CHECKPOINT"] = f"{folder}/{CHECKPOINT}"
    for name, value in request.configuration.items():
        variables[f"TRADEWIND_PARAM_{re.sub(r'[^0-9A-Za-z]', '_', name).upper()}"] = str(value)
    return variables


def is_variable(name: str) -> bool:
    """True when a shell can have a variable of that name."""
    return _VARIABLE.fullmatch(name) is not None


def check_variables(names: Iterable[str]) -> None:
    """See that a shell can be given some variables.

    Raises:
        DeployError: It cannot have one of that name.
    """
    for name in names:
        if not is_variable(name):
            raise DeployError(f"{name!r} is not the name of an environment variable", retryable=False)


_sources: dict[str, Callable[[str], str]] = {}


def add_secret_source(kind: str, read: Callable[[str], str]) -> None:
    """Let references of another kind be resolved in this process.

    Args:
        kind: What such references begin with.
        read: Gives the value of what stands behind the colon; it raises a `PrerequisiteError` where it cannot.
    """
    _sources[kind] = read


def resolve_secrets(references: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, read at this moment; callers hand them to the job and keep them nowhere.

    Args:
        references: Name -> ``env:NAME``, ``file:PATH``, ``keyring:SERVICE/NAME``, or of a kind of `add_secret_source`.

    Raises:
        PrerequisiteError: One cannot be read; the message has the reference, never a value.
        MissingProgramError: The package ``keyring`` is not installed.
    """
    values = {}
    for name, reference in references.items():
        kind, _, place = reference.partition(":")
        try:
            if kind == "env":
                values[name] = os.environ[place]
            elif kind == "file":
                values[name] = expand(place).read_text(encoding="utf-8").rstrip("\n")
            elif kind == "keyring":
                values[name] = _from_keyring(name, place)
            elif kind in _sources:
                values[name] = _sources[kind](place)
            else:
                # What is no reference may be the secret itself: it is not repeated.
                raise PrerequisiteError(
                    f"secret {name} is not a reference",
                    hint="write env:NAME, file:PATH or keyring:SERVICE/NAME",
                )
        except KeyError:
            raise PrerequisiteError(
                f"secret {name}: the environment has no variable {place}", hint=f"export {place}=..."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise PrerequisiteError(f"secret {name}: {place} cannot be read: {why}") from None
    return values


def _from_keyring(name: str, place: str) -> str:
    """A secret that the user's keyring keeps (GNOME Keyring, KWallet, macOS Keychain, ...)."""
    service, _, key = place.rpartition("/")
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise MissingProgramError(
            f"secret {name}: keyring:{place} needs the package keyring", hint=install_command("keyring")
        ) from None
    try:
        value = keyring.get_password(service, key)
    except KeyringError as error:
        raise PrerequisiteError(
            f"secret {name}: the keyring cannot be read: {type(error).__name__}",
            hint="it must be unlocked, and there must be one in this session; env: and file: need none",
        ) from None
    if value is None:
        raise PrerequisiteError(f"secret {name}: the keyring has no {place}", hint=f"keyring set {service} {key}")
    return value


def check_workdir(folder: Path) -> None:
    """See that the job's working folder is there.

    Raises:
        PrerequisiteError: It is not.
    """
    if not folder.is_dir():
        raise PrerequisiteError(
            f"the working folder {folder} does not exist", hint="set job.workdir to a folder that is there"
        )
