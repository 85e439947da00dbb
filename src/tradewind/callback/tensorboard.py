"""Writes trials as event files of TensorBoard: scalars over steps, and what its HPARAMS tab shows."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tradewind.callback.base import Callback, EndedTrial, StudyFacts
from tradewind.plugins import Settings
from tradewind.problem import TrialState
from tradewind.utils.dependencies import require_package

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_EVENTS = "events.out.tfevents.{:010d}.tradewind"
"""TensorBoard reads each file whose name has ``tfevents`` in it. It is the same however often a trial is written."""


def _look() -> None:
    require_package("tensorboard", "TensorBoard callbacks", "tensorboard")


class TensorboardSettings(Settings):
    """Settings of `TensorboardCallback`."""

    folder: Path | None = Field(
        None,
        description="The folder that tensorboard --logdir shows, with a folder for each study; TRADEWIND_HOME/"
        "tensorboard without it",
    )


class TensorboardCallback(Callback):
    """Writes event files of TensorBoard: scalars over steps, and what its HPARAMS tab shows of each trial."""

    Settings = TensorboardSettings
    settings: TensorboardSettings
    needs = (_look,)

    def __init__(self, *, settings: TensorboardSettings, study: StudyFacts) -> None:
        super().__init__(settings=settings, study=study)
        _look()
        folder = settings.folder or study.data_folder / "tensorboard"
        self._folder = folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', study.name)}-{study.owner}"

    @property
    def place(self) -> str:
        """The folder of the study."""
        return str(self._folder)

    def open(self) -> Collection[int]:
        """Make the folder of the study, and look which trials are in it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return {int(path.parent.name.removeprefix("trial-")) for path in self._folder.glob("trial-*/*.tradewind")}

    def log(self, ended: EndedTrial) -> None:
        """Write the file of a trial, all of it at once."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = self._folder / f"trial-{ended.trial.number:05d}"
        folder.mkdir(exist_ok=True)
        part = folder / f".{os.urandom(6).hex()}.part"  # a name that TensorBoard does not read
        try:
            with part.open("wb") as file:
                writer = RecordWriter(file)
                for event in self._events(ended):
                    writer.write(event.SerializeToString())
            part.replace(folder / _EVENTS.format(int(ended.begun)))
        finally:
            part.unlink(missing_ok=True)

    def _events(self, ended: EndedTrial) -> Iterator[Event]:
        """The events of a trial in the order in which a program would have written them."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

        begun, end = ended.begun, ended.ended
        start = SessionStartInfo(group_name=f"trial {ended.trial.number}", start_time_secs=begun)
        for name, value in {**dict(ended.trial.configuration), **ended.machines}.items():
            _set_value(start.hparams[name], value)
        yield Event(wall_time=begun, file_version="brain.Event:2")
        yield _hparams_event(begun, metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))
        for name, points in ended.series.items():
            for place, (step, value) in enumerate(points, 1):
                yield _scalar_event(begun + (end - begun) * place / len(points), step, name, value)
        for name, value in ended.metrics.items():
            reported = ended.series.get(name)
            if reported is None or reported[-1][1] != value:
                yield _scalar_event(end, reported[-1][0] if reported else 0, name, value)
        if ended.reason:
            yield _text_event(end, "reason", ended.reason)
        over = SessionEndInfo(status=_status(ended.trial.state), end_time_secs=end)
        yield _hparams_event(end, metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=over))


def _set_value(slot: Any, value: object) -> None:
    if isinstance(value, bool):
        slot.bool_value = value
    elif isinstance(value, int | float):
        slot.number_value = value
    else:
        slot.string_value = str(value)


def _status(state: TrialState) -> Any:
    """The status of a session; what was cut short is neither a success nor a failure."""
    from tensorboard.plugins.hparams import api_pb2

    if state is TrialState.ABORTED:
        return api_pb2.STATUS_UNKNOWN
    return api_pb2.STATUS_SUCCESS if state is TrialState.SUCCEEDED else api_pb2.STATUS_FAILURE


def _hparams_event(moment: float, tag: str, data: Any) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata

    value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data), tensor=metadata.NULL_TENSOR)
    return Event(wall_time=moment, summary=Summary(value=[value]))


def _scalar_event(moment: float, step: int, tag: str, value: float) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Event(wall_time=moment, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def _text_event(moment: float, tag: str, text: str) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text import metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    about = metadata.create_summary_metadata(tag, "")
    value = Summary.Value(tag=tag, metadata=about, tensor=make_tensor_proto([text.encode()]))
    return Event(wall_time=moment, summary=Summary(value=[value]))
