"""What past requests of an application teach, kept at hand so that a proposal comes at once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.search_builder import build_problem
from tradewind.errors import FormError
from tradewind.problem import PastStudy, Problem, Trial
from tradewind.problem.configuration import stable_hash
from tradewind.service.applications.form_values import read_values
from tradewind.service.applications.validation import parameters_of, stored_application

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.store.service.applications import ApplicationRow, ApplicationStore, PastTrialRow

FormValues = tuple[tuple[str, float | str], ...]
"""Job parameters of a run, by name."""

MAX_PAST_RUNS = 2_000
"""Runs of an application that are kept at hand, the newest ones."""

_KEPT = 64
_PRICES_SECONDS = 600.0
"""How long the offers of a space are believed without asking the catalogues again."""


@dataclass
class _History:
    """Runs of an application, as far as they were read.

    Attributes:
        mark: What the store said of them when they were read.
        runs: Parameters, problem and trial, by study and number.
        grouped: The trials by parameters and problem, the same objects while nothing was added.
    """

    mark: tuple[int, float] = (0, 0.0)
    runs: OrderedDict[tuple[int, int], tuple[FormValues, str, Trial]] = field(default_factory=OrderedDict)
    grouped: Mapping[tuple[FormValues, str], tuple[Trial, ...]] | None = None


class PastRunCache:
    """Past runs by application, and the problems of their spaces.

    Args:
        store: The applications.
        data_folder: For refreshed prices.
    """

    def __init__(self, store: ApplicationStore, data_folder: Path) -> None:
        self._store = store
        self._data_folder = data_folder
        self._lock = threading.Lock()
        self._histories: OrderedDict[Hashable, _History] = OrderedDict()
        self._problems: OrderedDict[str, tuple[float, Problem]] = OrderedDict()

    def problem(self, spec: JobSpec) -> Problem:
        """The problem of a specification; that of the same space is made once in ten minutes.

        Raises:
            NoOfferError: There is no offer for an instance parameter.
        """
        keys = ("space", "where", "offers", "catalogues", "select", "deploy", "objective")
        key = stable_hash([spec.name, {name: spec.model.get(name) for name in keys}, str(spec.budget)])
        now = time.monotonic()
        with self._lock:
            made, known = self._problems.get(key, (0.0, None))
        if known is None or now - made > _PRICES_SECONDS:
            known = build_problem(spec, self._data_folder)
            if known.space.enumerable:
                _ = known.candidates
            with self._lock:
                _keep(self._problems, key, (now, known))
        return known

    def past(self, row: ApplicationRow, spec: JobSpec, seen_by: str | None) -> tuple[PastStudy, ...]:
        """The runs of an application as studies that searchers learn from, one for each set of parameters.

        Args:
            row: The application; runs of its other versions count as far as they have the same fields.
            spec: The present specification.
            seen_by: Only runs of this tenant; None for those of all.
        """
        grouped = self._grouped(row, seen_by)
        own = spec.job.parameters
        return tuple(
            PastStudy(
                name=spec.name,
                parameters=type(own)({**own.values, **dict(given)}, own.fidelity),
                trials=trials,
                problem_key=key,
                objective=spec.objective,
                constraints=spec.constraints,
                billing=spec.billing,
            )
            for (given, key), trials in grouped.items()
        )

    def _grouped(self, row: ApplicationRow, seen_by: str | None) -> Mapping[tuple[FormValues, str], tuple[Trial, ...]]:
        key = (row.tenant, row.name, row.version, seen_by)
        mark = self._store.watermark(row.tenant, row.name, seen_by)
        with self._lock:
            history = self._histories.get(key) or _History()
            if history.grouped is not None and history.mark == mark:
                return history.grouped
            if mark[0] < history.mark[0]:  # requests were deleted: what they taught goes with them
                history = _History()
            since = history.mark[1]
        found = self._store.past(row.tenant, row.name, seen_by=seen_by, since=since, limit=MAX_PAST_RUNS)
        read = _reader(row)
        with self._lock:
            for past in found:
                if (given := read(past)) is not None:
                    place = (past.study_id, past.trial.number)
                    history.runs.pop(place, None)
                    history.runs[place] = (given, past.problem_key, past.trial)
            while len(history.runs) > MAX_PAST_RUNS:
                history.runs.popitem(last=False)
            grouped: dict[tuple[FormValues, str], list[Trial]] = {}
            for given, problem_key, trial in history.runs.values():
                grouped.setdefault((given, problem_key), []).append(trial)
            history.mark, history.grouped = mark, {each: tuple(trials) for each, trials in grouped.items()}
            _keep(self._histories, key, history)
            return history.grouped


def _reader(row: ApplicationRow) -> Any:
    """Reads the parameters of past requests by the fields of a version; None for those that have others."""
    known = stored_application(row)

    def read(past: PastTrialRow) -> FormValues | None:
        try:
            values = read_values(known.model.fields, past.parameters)
        except FormError:
            return None
        return tuple(sorted(parameters_of(known.model, values).items()))

    return read


def _keep(cache: OrderedDict[Any, Any], key: Hashable, value: Any) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > _KEPT:
        cache.popitem(last=False)
