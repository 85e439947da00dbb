"""Every installed callback against the suite, read back with the real packages."""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.callback.readers import mlflow_runs, mlflow_trials, tensorboard_trials

from tradewind import plugins
from tradewind.callback.base import Callback, SessionEnd, StudyFacts
from tradewind.errors import UnreachableError
from tradewind.problem import TrialState
from tradewind.testing.callbacks import CallbackConformance, LoggedTrial


@pytest.mark.parametrize("name", plugins.names("callback"))
def test_every_installed_callback_is_checked_here(name: str) -> None:
    part = plugins.load("callback", name)
    assert name in ("mlflow", "tensorboard") or not part.__module__.startswith("tradewind.")
    assert part.summary()


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all: to make its tables takes the longest."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.mark.xdist_group("mlflow")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own code
class TestMlflow(CallbackConformance):
    @pytest.fixture(autouse=True)
    def _at(self, uri: str) -> None:
        self.uri = uri

    def make(self, study: StudyFacts) -> Callback:
        made: Callback = plugins.create("callback", "mlflow", {"uri": self.uri}, study=study)
        return made

    def read(self, study: StudyFacts) -> Mapping[int, LoggedTrial]:
        return mlflow_trials(self.uri, study.owner)

    def test_trials_are_below_the_run_of_their_study(self, study: StudyFacts) -> None:
        first = self.make(study)
        first.open()
        first.log(self.ended(study, 2, TrialState.FAILED))
        (whole,), (one,) = mlflow_runs(self.uri, study.owner, "study"), mlflow_runs(self.uri, study.owner)
        assert whole.info.status == "RUNNING"
        assert one.data.tags["mlflow.parentRunId"] == whole.info.run_id
        tags = {"tradewind.owner": study.owner, "tradewind.study_id": "7", "tradewind.study": "me/sort"}
        assert tags.items() <= whole.data.tags.items()
        assert tags.items() <= one.data.tags.items()
        assert one.data.tags["tradewind.reason"] == "the program exited with code 3"
        assert (one.info.start_time, one.info.end_time) == (1_000_000_002_000, 1_000_000_062_000)
        first.close(SessionEnd("interrupted", "by the user", 1, 1.5))
        assert mlflow_runs(self.uri, study.owner, "study")[0].info.status == "KILLED"
        again = self.make(study)
        again.open()
        again.close(SessionEnd("finished", "the budget is used up", 1, 1.5, self.ended(study, 0).trial))
        (whole,) = mlflow_runs(self.uri, study.owner, "study")
        assert whole.info.status == "FINISHED"
        metric = f"best.{study.problem.objective.metric}"
        assert (whole.data.metrics[metric], whole.data.metrics["spent"]) == (0.5, 1.5)

    def test_a_trial_that_a_killed_process_had_half_written_is_there_once(
        self, study: StudyFacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mlflow.tracking import MlflowClient

        first, one = self.make(study), self.ended(study, 1)
        first.open()
        with monkeypatch.context() as context:
            context.setattr(MlflowClient, "set_terminated", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                first.log(one)
        again = self.make(study)
        assert set(again.open()) == set()
        again.log(one)
        found = self.read(study)
        assert list(found[1].points["loss"]) == [(1, 3.0), (2, 2.0), (4, 0.5)]

    def test_a_run_that_the_user_has_deleted_stays_away(self, study: StudyFacts) -> None:
        from mlflow.tracking import MlflowClient

        first = self.make(study)
        first.open()
        first.log(self.ended(study, 1))
        (run,) = mlflow_runs(self.uri, study.owner)
        MlflowClient(self.uri).delete_run(run.info.run_id)
        assert set(self.make(study).open()) == {1}

    def test_no_other_process_opens_it_at_the_same_time(
        self, study: StudyFacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two at once would both make MLflow's tables: the file would be broken for good."""
        import mlflow.tracking

        make, refused = mlflow.tracking.MlflowClient, list[bool]()

        def watched(**words: str) -> object:
            with (study.data_folder / "mlflow.lock").open("w") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            refused.append(True)
            return make(**words)

        monkeypatch.setattr(mlflow.tracking, "MlflowClient", watched)
        self.make(study).open()
        assert refused == [True]
        with (study.data_folder / "mlflow.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_server_that_nobody_runs_is_one_quick_line(self, study: StudyFacts, unused_port: int) -> None:
        given = {"uri": f"http://me:secret@127.0.0.1:{unused_port}"}
        callback: Callback = plugins.create("callback", "mlflow", given, study=study)
        with pytest.raises(UnreachableError, match=f"127.0.0.1:{unused_port} cannot be reached"):
            callback.open()
        assert callback.place == f"mlflow at http://me:***@127.0.0.1:{unused_port}"

    def test_a_relative_file_is_seen_from_the_job_and_without_an_address_it_is_ours(
        self, study: StudyFacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = {"uri": "sqlite:///mine.db"}
        callback: Callback = plugins.create("callback", "mlflow", given, study=study)
        assert callback.place == f"mlflow at sqlite:///{study.base}/mine.db"
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        study.data_folder.mkdir()
        (study.data_folder / "mlflow.db").write_bytes(Path(self.uri.removeprefix("sqlite:///")).read_bytes())
        own: Callback = plugins.create("callback", "mlflow", {}, study=study)
        own.open()
        assert own.place == f"mlflow at sqlite:///{study.data_folder}/mlflow.db"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", self.uri)
        theirs: Callback = plugins.create("callback", "mlflow", {}, study=study)
        theirs.open()
        assert theirs.place == f"mlflow at {self.uri}"


@pytest.mark.slow
class TestTensorboard(CallbackConformance):
    def make(self, study: StudyFacts) -> Callback:
        made: Callback = plugins.create("callback", "tensorboard", {"folder": study.base / "runs"}, study=study)
        return made

    def read(self, study: StudyFacts) -> Mapping[int, LoggedTrial]:
        return tensorboard_trials(study.base / "runs" / f"me-sort-{study.owner}")
