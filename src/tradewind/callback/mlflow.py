"""Writes a study as runs of MLflow: one for the study, and below it one for each trial."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import posixpath
import re
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import Field

from tradewind.callback.base import BegunTrial, Callback, EndedTrial, SessionEnd, StudyFacts
from tradewind.callback.written_points import WrittenPoints
from tradewind.errors import UnreachableError
from tradewind.passwords import hide_password
from tradewind.plugins import Settings
from tradewind.problem import TrialState
from tradewind.utils.dependencies import require_package

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.tracking import MlflowClient

_CONNECT_SECONDS = 5.0
"""How long a server may take to accept a connection; MLflow itself would try for minutes."""

T = TypeVar("T")

_METRICS, _PARAMS, _PAGE = 1000, 100, 1000
"""The most metrics and parameters that MLflow takes in one call, and runs that it gives in one page."""

_PARAM_LENGTH, _TAG_LENGTH = 6000, 5000

_TRIAL = {TrialState.SUCCEEDED: "FINISHED", TrialState.ABORTED: "KILLED"}
_WAITS = "SCHEDULED"
"""The status of a trial whose run was ended with the search: another process repeats it, or goes on with it."""

_SESSION = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


@contextlib.contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Have MLflow open a database alone: two searches at once would both make its tables, and leave half of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "mlflow.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _look() -> None:
    require_package("mlflow", "MLflow callbacks", "mlflow")


class MlflowSettings(Settings):
    """Settings of `MlflowCallback`."""

    uri: str = Field(
        "",
        description="Address of the tracking server or database; without it MLFLOW_TRACKING_URI, else a database in "
        "TRADEWIND_HOME",
    )
    experiment: str = Field("", max_length=500, description="Name of the experiment; without it the study's name")


class MlflowCallback(Callback):
    """Writes a run of MLflow for each trial, below one for the study: parameters, metrics over steps, status, tags."""

    Settings = MlflowSettings
    settings: MlflowSettings
    needs = (_look,)

    def __init__(self, *, settings: MlflowSettings, study: StudyFacts) -> None:
        super().__init__(settings=settings, study=study)
        _look()
        self._uri = _anchored(settings.uri, study.base)
        self._client: MlflowClient | None = None
        self._experiment = self._parent = ""
        self._begun: dict[int, _TrialRun] = {}

    @property
    def place(self) -> str:
        """The address, without a password."""
        return f"mlflow at {hide_password(self._uri)}" if self._uri else "mlflow"

    def open(self) -> Collection[int]:
        """Find the experiment and the study's run, or make them; the trials that have a run which is over are there."""
        import mlflow
        from mlflow.tracking import MlflowClient

        with _opening(self.study.data_folder), _without_notes():
            own = not self._uri and not mlflow.is_tracking_uri_set()  # type: ignore[no-untyped-call]
            if own:
                self._uri = f"sqlite:///{self.study.data_folder / 'mlflow.db'}"
            self._uri = self._uri or mlflow.get_tracking_uri()
            _reach(self._uri)
            self._client = client = MlflowClient(tracking_uri=self._uri)
            name = self.settings.experiment or self.study.name
            found = client.get_experiment_by_name(name)
            artifacts = (self.study.data_folder / "mlflow" / self.study.owner).as_uri() if own else None
            self._experiment = (
                found.experiment_id
                if found is not None
                else client.create_experiment(name, artifact_location=artifacts)
            )
        self._parent = self._study_run(client)
        over = ("FINISHED", "FAILED", "KILLED")
        return {
            int(run.data.tags["tradewind.trial"])
            for run in self._runs("trial", deleted=True)  # what the user has deleted is not to come back
            if run.info.status in over and run.data.tags.get("tradewind.trial", "").isdecimal()
        }

    def _runs(self, kind: str, *also: str, deleted: bool = False) -> Iterator[Run]:
        """The runs of the study or of its trials, by their start."""
        from mlflow.entities import ViewType

        assert self._client is not None
        which = (f"tags.`tradewind.owner` = '{self.study.owner}'", f"tags.`tradewind.kind` = '{kind}'", *also)
        view, order = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY, ["attributes.start_time", "attributes.run_id"]
        token: str | None = None
        while True:
            page = self._client.search_runs([self._experiment], " and ".join(which), view, _PAGE, order, token)
            yield from page
            if not (token := page.token):
                return

    def _study_run(self, client: MlflowClient) -> str:
        """The run of the study. Of several that workers have made at the same moment it is the same for all."""
        study = self.study
        found = next(self._runs("study"), None)
        if found is None:
            objective = study.problem.objective
            tags = {**self._tags("study"), "tradewind.searcher": study.searcher}
            made = client.create_run(self._experiment, _milliseconds(study.created), tags, study.name)
            found = next(self._runs("study"), made)
            if found.info.run_id != made.info.run_id:
                client.delete_run(made.info.run_id)
            for key, value in {
                "searcher": study.searcher,
                "seed": study.seed,
                "objective": f"{objective.goal} {objective.metric}",
            }.items():
                client.log_param(found.info.run_id, key, value)
        run_id: str = found.info.run_id
        client.update_run(run_id, status="RUNNING")
        return run_id

    def _tags(self, kind: str) -> dict[str, str]:
        study = self.study
        return {
            "tradewind.kind": kind,
            "tradewind.owner": study.owner,
            "tradewind.study": study.name,
            "tradewind.study_id": str(study.id),
            "mlflow.source.name": "tradewind",
            "mlflow.source.type": "JOB",
        }

    def begin(self, begun: BegunTrial) -> None:
        """Make the run of a trial, with its parameters."""
        self._run_of(begun)

    def report(self, begun: BegunTrial) -> None:
        """Write the points of metrics that are not there yet, with the time of now."""
        from mlflow.entities import Metric

        there, now = self._run_of(begun), _milliseconds(time.time())
        self._write(
            there, (Metric(_key(name), value, now, step) for name, step, value in there.points.missing(begun.series))
        )

    def log(self, ended: EndedTrial) -> None:
        """Write what is missing of a trial, and its end. What is written twice is there once."""
        assert self._client is not None
        client, trial = self._client, ended.trial
        there = self._run_of(ended)
        if not there.points.agree(ended.series):  # a repeated run has reported other values
            client.delete_run(there.run_id)
            there = self._made(ended)
        self._write(there, _metrics(ended, there))
        client.set_tag(there.run_id, "tradewind.state", trial.outcome)
        if ended.run is not None:
            client.set_tag(there.run_id, "tradewind.run_id", ended.run.run_id)
        if ended.reason:
            client.set_tag(there.run_id, "tradewind.reason", ended.reason[:_TAG_LENGTH])
        client.set_terminated(there.run_id, _TRIAL.get(trial.state, "FAILED"), _milliseconds(ended.ended))
        self._begun.pop(trial.number, None)

    def _run_of(self, begun: BegunTrial) -> _TrialRun:
        """The run of a trial with its parameters; one that another process has begun is gone on with."""
        number = begun.trial.number
        there = self._begun.get(number)
        if there is None:
            found = next(self._runs("trial", f"tags.`tradewind.trial` = '{number}'"), None)
            there = self._made(begun) if found is None else self._found(found)
        if there.parameters != _parameters(begun):  # of an offer that costs another price now
            assert self._client is not None
            self._client.delete_run(there.run_id)
            there = self._made(begun)
        self._begun[number] = there
        return there

    def _made(self, begun: BegunTrial) -> _TrialRun:
        """A new run of a trial, with its parameters and nothing else."""
        from mlflow.entities import Param

        assert self._client is not None
        number, given = begun.trial.number, _parameters(begun)
        tags = {
            **self._tags("trial"),
            "mlflow.parentRunId": self._parent,
            "tradewind.trial": str(number),
            "tradewind.state": begun.trial.outcome,
        }
        found = self._client.create_run(self._experiment, _milliseconds(begun.begun), tags, f"trial {number}")
        for params in _pieces(given.items(), _PARAMS):
            self._client.log_batch(found.info.run_id, params=[Param(key, value) for key, value in params])
        return _TrialRun(found.info.run_id, given, WrittenPoints(_key))

    def _found(self, found: Run) -> _TrialRun:
        """A run that is there, with the points that it has; it goes on."""
        assert self._client is not None
        run_id: str = found.info.run_id
        there = _TrialRun(run_id, dict(found.data.params), WrittenPoints(_key))
        for key in found.data.metrics:
            for point in self._client.get_metric_history(run_id, key):
                there.add(point)
        if found.info.status == _WAITS:
            self._client.update_run(run_id, status="RUNNING")
        return there

    def _write(self, there: _TrialRun, metrics: Iterable[Metric]) -> None:
        assert self._client is not None
        for piece in _pieces(metrics, _METRICS):
            self._client.log_batch(there.run_id, metrics=piece)
            for one in piece:
                there.add(one)

    def close(self, end: SessionEnd) -> None:
        """End the run of the study, with its best value so far."""
        assert self._client is not None
        client, best = self._client, end.best
        figures = {"trials": float(end.trials), "spent": end.spent}
        if best is not None and best.observation is not None and best.observation.objective is not None:
            figures[f"best.{self.study.problem.objective.metric}"] = best.observation.objective
            client.set_tag(self._parent, "tradewind.best_trial", str(best.number))
        for name, value in figures.items():
            client.log_metric(self._parent, _key(name), value, step=end.trials)
        for there in self._begun.values():
            client.update_run(there.run_id, status=_WAITS)
        client.set_tag(self._parent, "tradewind.reason", end.reason[:_TAG_LENGTH])
        client.set_terminated(self._parent, _SESSION[end.status])


@dataclass(slots=True)
class _TrialRun:
    """The run of a trial, and the parameters and points that it has."""

    run_id: str
    parameters: Mapping[str, str]
    points: WrittenPoints
    latest: int = 0

    def add(self, metric: Metric) -> None:
        """Note a point that is there."""
        self.points.add(metric.key, metric.step, metric.value)
        self.latest = max(self.latest, metric.timestamp)


def _parameters(begun: BegunTrial) -> dict[str, str]:
    given = {**dict(begun.trial.configuration), **begun.machines, "fidelity": begun.trial.proposal.fidelity}
    return {_key(name): str(value)[:_PARAM_LENGTH] for name, value in given.items()}


def _metrics(ended: EndedTrial, there: _TrialRun) -> Iterator[Metric]:
    """The metrics of a trial over its steps, and its results, that are not there."""
    from mlflow.entities import Metric

    begun, end = ended.begun, ended.ended
    for name, points in ended.series.items():
        for place, (step, value) in enumerate(points, 1):
            if not there.points.has(name, step, value):
                moment = _milliseconds(begun + (end - begun) * place / len(points))
                yield Metric(_key(name), value, max(moment, there.latest), step)
    for name, value in ended.metrics.items():
        reported = ended.series.get(name)
        if reported is None or reported[-1][1] != value:
            step = reported[-1][0] if reported else 0
            if not there.points.has(name, step, value):
                yield Metric(_key(name), value, max(_milliseconds(end), there.latest) + 1, step)  # it is the last one


def _pieces(items: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    left = iter(items)
    while found := list(islice(left, size)):
        yield found


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _key(name: str) -> str:
    """A name that MLflow takes for a metric or a parameter: it is used as a path."""
    return posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", name)).replace("..", "_").strip("/.")[:250] or "_"


def _anchored(uri: str, base: Path) -> str:
    """An address of SQLite with a relative file, seen from the folder of the job."""
    file = uri.removeprefix("sqlite:///")
    return f"sqlite:///{base / file}" if file != uri and file else uri


def _reach(uri: str) -> None:
    """See that somebody listens, where the address is that of a server."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise UnreachableError(f"{parts.hostname}:{port} cannot be reached: {error.strerror or error}") from None


@contextlib.contextmanager
def _without_notes() -> Iterator[None]:
    """Without MLflow's lines about tables that it makes."""
    loggers: list[Any] = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
