"""What a job finds in its environment, whoever runs it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tradewind.errors import DeployError
from tradewind.problem import RunRequest

METRICS = "metrics.jsonl"
OUTPUTS = "outputs"


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
    for name, value in request.configuration.items():
        variables[f"TRADEWIND_PARAM_{re.sub(r'[^0-9A-Za-z]', '_', name).upper()}"] = str(value)
    return variables


def resolve_secrets(references: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, read at this moment; callers hand them to the job and keep them nowhere.

    Args:
        references: Name -> ``env:NAME`` or ``file:PATH``.

    Raises:
        DeployError: One cannot be read; the message has the reference, never a value.
    """
    values = {}
    for name, reference in references.items():
        kind, _, place = reference.partition(":")
        try:
            if kind == "env":
                values[name] = os.environ[place]
            elif kind == "file":
                values[name] = Path(place).expanduser().read_text(encoding="utf-8").rstrip("\n")
            else:
                raise DeployError(
                    f"secret {name}: {reference!r} is not a reference",
                    hint="write env:NAME or file:PATH",
                    retryable=False,
                )
        except KeyError:
            raise DeployError(
                f"secret {name}: the environment has no variable {place}", hint=f"export {place}=...", retryable=False
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise DeployError(f"secret {name}: {place} cannot be read: {why}", retryable=False) from None
    return values
