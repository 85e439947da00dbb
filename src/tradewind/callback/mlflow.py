"""Writes a study as runs of MLflow: one for the study, and below it one for each trial."""

from __future__ import annotations

import contextlib
import logging
import posixpath
import re
import socket
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field

from tradewind.callback.base import Callback, EndedTrial, SessionEnd, StudyFacts
from tradewind.errors import UnreachableError
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
_SESSION = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}

_opening = threading.Lock()
"""Held while MLflow opens a database: two threads at once would both make its tables."""


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

    @property
    def place(self) -> str:
        """The address, without a password."""
        return f"mlflow at {_without_password(self._uri)}" if self._uri else "mlflow"

    def open(self) -> Collection[int]:
        """Find the experiment and the study's run, or make them; the trials that have a run which is over are there."""
        import mlflow
        from mlflow.tracking import MlflowClient

        with _opening, _without_notes():
            own = not self._uri and not mlflow.is_tracking_uri_set()  # type: ignore[no-untyped-call]
            if own:
                self.study.data_folder.mkdir(parents=True, exist_ok=True)
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

    def log(self, ended: EndedTrial) -> None:
        """Write the run of a trial. What is written twice is there once: parameters and metrics are the same."""
        from mlflow.entities import Param

        assert self._client is not None
        client, trial = self._client, ended.trial
        found = next(self._runs("trial", f"tags.`tradewind.trial` = '{trial.number}'"), None)
        if found is None:
            tags = {**self._tags("trial"), "mlflow.parentRunId": self._parent, "tradewind.trial": str(trial.number)}
            found = client.create_run(self._experiment, _milliseconds(ended.begun), tags, f"trial {trial.number}")
        run_id = found.info.run_id
        given = {**dict(trial.configuration), **ended.machines, "fidelity": trial.proposal.fidelity}
        for params in _pieces(given.items(), _PARAMS):
            client.log_batch(run_id, params=[Param(_key(k), str(value)[:_PARAM_LENGTH]) for k, value in params])
        for metrics in _pieces(_metrics(ended), _METRICS):
            client.log_batch(run_id, metrics=metrics)
        client.set_tag(run_id, "tradewind.state", trial.outcome)
        if ended.run is not None:
            client.set_tag(run_id, "tradewind.run_id", ended.run.run_id)
        if ended.reason:
            client.set_tag(run_id, "tradewind.reason", ended.reason[:_TAG_LENGTH])
        client.set_terminated(run_id, _TRIAL.get(trial.state, "FAILED"), _milliseconds(ended.ended))

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
        client.set_tag(self._parent, "tradewind.reason", end.reason[:_TAG_LENGTH])
        client.set_terminated(self._parent, _SESSION[end.status])


def _metrics(ended: EndedTrial) -> Iterator[Metric]:
    """The metrics of a trial over its steps, and its results; each time they have the same time stamps."""
    from mlflow.entities import Metric

    begun, end = ended.begun, ended.ended
    for name, points in ended.series.items():
        for place, (step, value) in enumerate(points, 1):
            yield Metric(_key(name), value, _milliseconds(begun + (end - begun) * place / len(points)), step)
    for name, value in ended.metrics.items():
        reported = ended.series.get(name)
        if reported is None or reported[-1][1] != value:
            yield Metric(_key(name), value, _milliseconds(end) + 1, reported[-1][0] if reported else 0)


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


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    if not parts.password:
        return uri
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))


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
