"""Tradewind finds the cheapest configuration that finishes a job before its deadline, within a budget.

The public names load when they are first used: a program that only calls `report` does not pay for the rest.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tradewind.engine.ask_tell.asked_trial import Asked
    from tradewind.engine.ask_tell.shared_study import SharedStudy
    from tradewind.engine.async_study import AsyncStudy
    from tradewind.engine.study import Study
    from tradewind.engine.tunable import tunable
    from tradewind.reporting.study.notebook import StudyReport
    from tradewind.runtime_api import fraction, output_path, parameters, report
    from tradewind.tenancy.submission.search_submission import submit

__version__ = "0.1.0"

_PLACES = {
    "Asked": "tradewind.engine.ask_tell.asked_trial",
    "AsyncStudy": "tradewind.engine.async_study",
    "SharedStudy": "tradewind.engine.ask_tell.shared_study",
    "Study": "tradewind.engine.study",
    "StudyReport": "tradewind.reporting.study.notebook",
    "fraction": "tradewind.runtime_api",
    "output_path": "tradewind.runtime_api",
    "parameters": "tradewind.runtime_api",
    "report": "tradewind.runtime_api",
    "submit": "tradewind.tenancy.submission.search_submission",
    "tunable": "tradewind.engine.tunable",
}

__all__ = [
    "Asked",
    "AsyncStudy",
    "SharedStudy",
    "Study",
    "StudyReport",
    "__version__",
    "fraction",
    "output_path",
    "parameters",
    "report",
    "submit",
    "tunable",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tradewind' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
