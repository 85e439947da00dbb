"""What MLflow and TensorBoard themselves read of what the callbacks wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.testing.callbacks import LoggedTrial

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def mlflow_runs(uri: str, owner: str, kind: str = "trial") -> list[Any]:
    """The runs of a study's trials, or of the study itself."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    which = f"tags.`tradewind.owner` = '{owner}' and tags.`tradewind.kind` = '{kind}'"
    return list(client.search_runs([one.experiment_id for one in client.search_experiments()], which))


def _order(point: Any) -> tuple[int, int]:
    """MLflow's own: the last point by it is the value of the metric."""
    return (point.step, point.timestamp)


def mlflow_trials(uri: str, owner: str) -> Mapping[int, LoggedTrial]:
    """The trials of a study by number."""
    from mlflow.tracking import MlflowClient

    client, found = MlflowClient(uri), dict[int, LoggedTrial]()
    for run in mlflow_runs(uri, owner):
        number = int(run.data.tags["tradewind.trial"])
        assert number not in found, f"trial {number} is there twice"
        points = {
            name: [
                (one.step, one.value) for one in sorted(client.get_metric_history(run.info.run_id, name), key=_order)
            ]
            for name in run.data.metrics
        }
        status = {"FINISHED": "good", "FAILED": "bad", "KILLED": "cut"}.get(run.info.status, run.info.status.lower())
        found[number] = LoggedTrial(run.data.params, points, status)
    return found


def tensorboard_trials(folder: Path) -> Mapping[int, LoggedTrial]:
    """The trials below a folder as the HPARAMS tab shows them, with the points of their scalars."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups
    from tensorboard.util.tensor_util import make_ndarray

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    hparams = backend_context.Context(TBContext(data_provider=provider, logdir=str(folder)))
    request = RequestContext()
    tab = get_experiment.Handler(request, hparams, "", api_pb2.GetExperimentRequest()).run()
    columns = [api_pb2.ColParams(hparam=one.name) for one in tab.hparam_infos]
    columns += [api_pb2.ColParams(metric=one.name) for one in tab.metric_infos]
    asked = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=1000, col_params=columns, allowed_statuses=list(api_pb2.Status.values())
    )
    found: dict[int, LoggedTrial] = {}
    for group in list_session_groups.Handler(request, hparams, "", asked).run().session_groups:
        (session,) = group.sessions
        values = {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()}
        accumulator = multiplexer.GetAccumulator(session.name)
        try:
            scalars = accumulator.PluginTagToContent("scalars")
        except KeyError:  # it has reported nothing yet
            scalars = {}
        points = {
            tag: [(e.step, float(make_ndarray(e.tensor_proto))) for e in accumulator.Tensors(tag)] for tag in scalars
        }
        parameters = {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in values.items()}
        status = {api_pb2.STATUS_SUCCESS: "good", api_pb2.STATUS_FAILURE: "bad", api_pb2.STATUS_UNKNOWN: "cut"}
        found[int(group.name.removeprefix("trial "))] = LoggedTrial(
            parameters, points, status[session.status] if session.end_time_secs else "running"
        )
    return found
