"""Writes trials as event files of TensorBoard: scalars over steps, and what its HPARAMS tab shows."""

from __future__ import annotations

import io
import os
import re
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tradewind.callback.base import BegunTrial, Callback, EndedTrial, StudyFacts
from tradewind.callback.written_points import WrittenPoints
from tradewind.plugins import Settings
from tradewind.problem import Trial, TrialState
from tradewind.utils.dependencies import require_package

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_EVENTS = "events.out.tfevents.{:010d}.tradewind"
"""TensorBoard reads each file whose name has ``tfevents`` in it. It is the same however often a trial is written."""

_RUNNING = ".running"
"""Beside the file of a trial that has not ended."""

_AROUND = 16
"""Bytes of a record beside its data: its length, and two checksums."""


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
        self._begun: dict[int, _EventFile] = {}

    @property
    def place(self) -> str:
        """The folder of the study."""
        return str(self._folder)

    def open(self) -> Collection[int]:
        """Make the folder of the study, and look which trials are in it with their end."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return {
            int(path.parent.name.removeprefix("trial-"))
            for path in self._folder.glob("trial-*/*.tradewind")
            if not (path.parent / _RUNNING).exists()
        }

    def begin(self, begun: BegunTrial) -> None:
        """Begin the file of a trial, with its parameters; one that another process has begun is gone on with."""
        self._file_of(begun)

    def report(self, begun: BegunTrial) -> None:
        """Add the points that are not there yet."""
        file, now = self._file_of(begun), time.time()
        file.append(_scalar_event(now, step, name, value) for name, step, value in file.points.missing(begun.series))

    def log(self, ended: EndedTrial) -> None:
        """Add what is missing of a trial, and its end; where it was not begun, write all of its file at once."""
        folder = self._folder_of(ended.trial)
        file = self._begun.pop(ended.trial.number, None) or _EventFile.found(folder)
        whole = _events(ended)
        if (
            file is None
            or not (file.begins_as(ended) and file.points.agree(ended.series))
            or (file.over and not (folder / _RUNNING).exists())
        ):
            self._replace(folder, ended, whole)
        elif not file.over:
            file.append(event for event in whole if not file.has(event))
        (folder / _RUNNING).unlink(missing_ok=True)

    def _file_of(self, begun: BegunTrial) -> _EventFile:
        number = begun.trial.number
        folder, file = self._folder_of(begun.trial), self._begun.get(number)
        if file is None:
            (folder / _RUNNING).touch()
            file = _EventFile.found(folder)
        if file is None or file.over or not file.begins_as(begun):
            file = self._replace(folder, begun, _first_events(begun))
        self._begun[number] = file
        return file

    def _folder_of(self, trial: Trial) -> Path:
        folder = self._folder / f"trial-{trial.number:05d}"
        folder.mkdir(exist_ok=True)
        return folder

    def _replace(self, folder: Path, begun: BegunTrial, events: Iterable[Event]) -> _EventFile:
        """Write a file all at once, in the place of the one that is there."""
        path = folder / _EVENTS.format(int(begun.begun))
        part = folder / f".{os.urandom(6).hex()}.part"  # a name that TensorBoard does not read
        try:
            file = _EventFile(part)
            file.append(events)
            for other in folder.glob("*.tradewind"):
                if other != path:
                    other.unlink()
            part.replace(path)
            file.path = path
            return file
        finally:
            part.unlink(missing_ok=True)


class _EventFile:
    """The events of a trial, which are only added to: a TensorBoard that looks at the file reads on.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start: Any = None
        self.tags: set[str] = set()
        self.points = WrittenPoints(stored=_single)

    @classmethod
    def found(cls, folder: Path) -> _EventFile | None:
        """The file in a folder with what is in it; half a record that a killed process has left is cut off."""
        from tensorboard.compat.proto.event_pb2 import Event

        path = next(folder.glob("*.tradewind"), None)
        if path is None:
            return None
        file, place, data = cls(path), 0, path.read_bytes()
        while (record := _record(data, place)) is not None:
            file._note(Event.FromString(record))
            place += len(record) + _AROUND
        if place < len(data):
            os.truncate(path, place)
        return file

    def append(self, events: Iterable[Event]) -> None:
        """Add events."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        added = list(events)
        buffer = io.BytesIO()
        writer = RecordWriter(buffer)
        for event in added:
            writer.write(event.SerializeToString())
        with self.path.open("ab") as file:
            file.write(buffer.getvalue())
        for event in added:
            self._note(event)

    def _note(self, event: Event) -> None:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                self.points.add(value.tag, event.step, value.simple_value)
            else:
                self.tags.add(value.tag)
                self.start = _start_of(event) or self.start

    @property
    def over(self) -> bool:
        """True where the end of the trial is in it."""
        from tensorboard.plugins.hparams import metadata

        return metadata.SESSION_END_INFO_TAG in self.tags

    def has(self, event: Event) -> bool:
        """True where an event of a trial that is given again is there."""
        if event.file_version:
            return True
        (value,) = event.summary.value
        if value.HasField("simple_value"):
            return self.points.has(value.tag, event.step, value.simple_value)
        return value.tag in self.tags

    def begins_as(self, begun: BegunTrial) -> bool:
        """True where it begins with the parameters of a trial."""
        return bool(self.start == _start_of(_first_events(begun)[1]))


def _start_of(event: Event) -> Any:
    """The parameters that an event tells of; None for another one."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    (value,) = event.summary.value
    if value.tag != metadata.SESSION_START_INFO_TAG:
        return None
    return HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info


def _single(value: float) -> float:
    """A number as the file keeps it."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    return float(Summary.Value(simple_value=value).simple_value)


def _record(data: bytes, place: int) -> bytes | None:
    """The record at a place of a file of events; None where there is none, or half of one."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    header = data[place : place + 8]
    if len(header) < 8 or data[place + 8 : place + 12] != struct.pack("<I", masked_crc32c(header)):
        return None
    (length,) = struct.unpack("<Q", header)
    record = data[place + 12 : place + 12 + length]
    end = data[place + 12 + length : place + _AROUND + length]
    return record if end == struct.pack("<I", masked_crc32c(record)) else None


def _first_events(begun: BegunTrial) -> list[Event]:
    """The beginning of a file: its version, and the parameters of the trial."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    start = SessionStartInfo(group_name=f"trial {begun.trial.number}", start_time_secs=begun.begun)
    for name, value in {**dict(begun.trial.configuration), **begun.machines}.items():
        _set_value(start.hparams[name], value)
    data = HParamsPluginData(session_start_info=start)
    return [
        Event(wall_time=begun.begun, file_version="brain.Event:2"),
        _hparams_event(begun.begun, metadata.SESSION_START_INFO_TAG, data),
    ]


def _events(ended: EndedTrial) -> Iterator[Event]:
    """The events of a trial in the order in which a program would have written them."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    begun, end = ended.begun, ended.ended
    yield from _first_events(ended)
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
