"""A load generator in the pod of the application that it drives: when that is ready, and how both end."""

from __future__ import annotations

import re

from tradewind.deployer.runner.exit_reasons import out_of_memory_reason
from tradewind.errors import DeployError
from tradewind.problem import Fault, RunState, RunStatus, Usage

APPLICATION_CONTAINER = "application"
"""The name of the container that the application runs in; the load generator's is the job's."""

_CLASSES = {"d": "0-9", "w": "[:alnum:]_", "s": "[:space:]"}
_TOKEN = re.compile(r"\\(.)|(\[\^?\]?)|(\])|\(\?(:)?|[*+?}]\?|(.)", re.DOTALL)


def posix_pattern(pattern: str) -> str:
    """A pattern of Python's as the extended regular expression that busybox knows.

    Raises:
        DeployError: It has what only Python knows: look-around, groups with names, lazy repeats.
    """
    found, inside = [], False
    for token in _TOKEN.finditer(pattern):
        text, escaped = token[0], token[1]
        if escaped in _CLASSES:
            found.append(_CLASSES[escaped] if inside else f"[{_CLASSES[escaped]}]")
        elif escaped in ("D", "W", "S") and not inside:
            found.append(f"[^{_CLASSES[escaped.lower()]}]")
        elif escaped is not None and escaped.isalnum():
            raise _unknown(pattern, text)
        elif escaped is not None:
            found.append(escaped if inside else text)
        elif inside:
            inside = text != "]"
            found.append(text)
        elif text.startswith("["):
            inside = True
            found.append(text)
        elif text == "(?:":
            found.append("(")
        elif len(text) > 1:
            raise _unknown(pattern, text)
        else:
            found.append(text)
    return "".join(found)


def _unknown(pattern: str, part: str) -> DeployError:
    return DeployError(
        f"on Kubernetes, {part!r} cannot be used in job.load.ready.pattern: {pattern!r}",
        hint="write it as an extended regular expression, as grep -E has it",
        retryable=False,
    )


def stopped_early(
    said: dict[str, str], runtime: float, memory: int | None, *, oom: bool, usage: Usage
) -> RunStatus | None:
    """How a run ended whose load generator was not there, or not to its end, for the application's sake; else None.

    Args:
        said: The figures of the load's script.
        runtime: Seconds that the run took.
        memory: What the application could take.
        oom: Whether it was killed for taking more.
        usage: What was used.
    """
    state = said.get("state")
    if state not in ("died", "unready"):
        return None
    if state == "unready":
        return RunStatus(RunState.FAILED, runtime, "the application was not ready in time", Fault.JOB, usage=usage)
    code = int(said.get("application") or 1)
    words = f"the application ended before the load generator did, with code {code}"
    if oom:
        words = f"the application: {out_of_memory_reason(memory)}"
    return RunStatus(RunState.FAILED, runtime, words, Fault.JOB, code or 1, usage)
