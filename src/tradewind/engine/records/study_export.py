"""Writes a study as records that another machine can go on from: job, parts, offers, trials, and logs if wanted."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from tradewind import plugins
from tradewind.deployer.environment import resolve_secrets
from tradewind.deployer.runner.base import AnswersFromRecords
from tradewind.engine.search_builder import build_problem, offers_of
from tradewind.errors import PluginError, SpecError, TradewindError
from tradewind.interpreter.base import ReadsNoFiles
from tradewind.passwords import hide_in_document
from tradewind.problem import Offer
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.base import Store, StudyRow
from tradewind.store.studies.records import StudyRecord, study_record
from tradewind.utils.log_copies import SecretMask, copy_run_files
from tradewind.utils.paths import expand
from tradewind.utils.units import count, format_memory
from tradewind.utils.user_functions import JobRelativePath

_LARGEST_FILE = 1 << 20
_PAGE = 500


class StudyExport:
    """A study on its way into a file of records.

    Args:
        store: Where it is kept.
        study_id: Its number there.
        data_folder: For refreshed prices.
        log_bytes: Keep so many bytes of each file that a run has left; None to keep no logs.

    Attributes:
        notes: Sentences about what is not in the records; whole once they were all taken.
        trials: Number of trials that were taken so far.

    Raises:
        StudyNotFoundError: There is no such study.
    """

    def __init__(self, store: Store, study_id: int, data_folder: Path, *, log_bytes: int | None = None) -> None:
        self.notes: list[str] = []
        self.trials = 0
        self._store = store
        self._row = store.study(study_id)
        self._data_folder = data_folder
        self._log_bytes = log_bytes
        self._spec = _specification(self._row)
        self._mask = SecretMask(self._secret_values())

    def documents(self) -> Iterator[Mapping[str, Any]]:
        """The records: the study's, and one a trial."""
        yield self._mask.document(hide_in_document(study_record(self._study_record())))
        without = 0
        outputs = _interpreted_outputs(self._spec)
        for document in self._store.export_records(self._row.id):
            self.trials += 1
            found: Mapping[str, Any] = document
            if self._log_bytes is not None:
                runs = [self._with_logs(run, outputs, self._log_bytes) for run in document["runs"]]
                without += not any("logs" in run for run in runs)
                found = {**document, "runs": runs}
            yield self._mask.document(found)
        if without:
            self.notes.append(f"the logs of {count(without, 'trial')} are not on this machine: its metrics stand alone")

    def _with_logs(self, run: Mapping[str, Any], outputs: list[str] | None, most: int) -> Mapping[str, Any]:
        files = copy_run_files(Path(run["folder"]), outputs, most, self._mask) if run["folder"] else {}
        return {**run, "logs": files} if files else run

    def _study_record(self) -> StudyRecord:
        row = replace(self._row, id=0, owner="")
        if self._spec is None:
            return StudyRecord(row, versions=_versions(None))
        files, left_out = _job_files(self._spec, self._mask)
        self.notes += [f"not in the record: {words}" for words in left_out]
        if hide_in_document(row.spec) != row.spec:
            left_out = [*left_out, "the passwords in the addresses and the environment of the job, which are ***"]
            self.notes.append(f"not in the record: {left_out[-1]}")
        # What the study came with stands under `offers`, with the prices of its trials.
        document = {key: value for key, value in row.spec.items() if key != "known_offers"}
        row, offers = replace(row, spec=document), self._offers(self._spec)
        return StudyRecord(row, offers, files, left_out, _versions(self._spec))

    def _offers(self, spec: JobSpec) -> Mapping[str, tuple[Offer, ...]] | None:
        """The offers of the space: of those that trials ran on with the price at that time."""
        try:
            found = offers_of(spec, build_problem(spec, self._data_folder))
        except TradewindError as error:
            self.notes.append(f"not in the record: the offers of the space, as {error.message}")
            return None
        paid = self._paid_offers()
        return {name: tuple(paid.get(offer.key, offer) for offer in offers) for name, offers in found.items()}

    def _paid_offers(self) -> dict[str, Offer]:
        """The offers of the trials, each for one machine, by their key."""
        found: dict[str, Offer] = {}
        since = 0
        while page := self._store.trials(self._row.id, since=since, limit=_PAGE):
            singles = (trial.offer.times(1) for trial in page)
            found |= {offer.key: offer for offer in singles}
            since = page[-1].number + 1
        return found

    def _secret_values(self) -> list[str]:
        """The values of the job's secrets, as far as they can be read here: what prints one must not hand it on."""
        found: list[str] = []
        hide_in_document(self._row.spec, found.append)
        if self._spec is None:
            return found
        references = {
            **self._spec.job.secrets,
            **{address: one["password"] for address, one in self._spec.places.items() if "password" in one},
        }
        for name, reference in references.items():
            try:
                found += resolve_secrets({name: reference}).values()
            except TradewindError:
                if self._log_bytes is not None:
                    self.notes.append(f"secret {name} cannot be read here: the logs are not searched for it")
        return found


def _specification(row: StudyRow) -> JobSpec | None:
    """The study's specification; None where this version cannot read it any more."""
    try:
        return JobSpec.from_json(row.spec)
    except SpecError:
        return None


def _interpreted_outputs(spec: JobSpec | None) -> list[str] | None:
    """The files below ``outputs/`` that interpreters read; None for all, where a function of the user's reads."""
    if spec is None:
        return None
    found = []
    for choice in spec.interpret:
        part = _part("interpreter", choice.name)
        if part is not None and issubclass(part, ReadsNoFiles):
            continue
        if part is None or "file" not in part.Settings.model_fields:
            return None
        file = str(choice.settings.get("file", ""))
        if file not in ("", "stdout", "stderr", "metrics") and ".." not in file.split("/"):
            found.append(file)
    return found


def _job_files(spec: JobSpec, mask: SecretMask) -> tuple[dict[str, str], list[str]]:
    """Files that the job's parts read, and why others are left out."""
    files: dict[str, str] = {}
    left_out: list[str] = []
    for name in dict.fromkeys(_file_names(spec)):
        text = _file_text(spec.base, name, mask)
        if isinstance(text, TradewindError):
            left_out.append(f"{name}, {text.message}")
        else:
            files[name] = text
    return files, left_out


def _file_text(base: Path, name: str, mask: SecretMask) -> str | TradewindError:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return TradewindError("which is not below the folder of the job")
    try:
        data = (base / name).read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        return TradewindError(f"which cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return TradewindError("which is no text")
    if len(data) > _LARGEST_FILE:
        return TradewindError(f"which is larger than {format_memory(_LARGEST_FILE)}")
    return text if mask.text(text) == text else TradewindError("which has the value of a secret in it")


def _file_names(spec: JobSpec) -> Iterator[str]:
    """Paths among the settings of the parts that are answered from files: catalogues, selector, interpreters, ..."""
    for kind, name, settings in _parts(spec):
        part = _part(kind, name)
        if part is None or (kind in ("runner", "provisioner") and not issubclass(part, AnswersFromRecords)):
            continue  # those of the others are keys and folders of this machine
        for key, field in part.Settings.model_fields.items():
            value = settings.get(key)
            if not isinstance(value, str):
                continue
            if field.annotation in (Path, Path | None):
                yield str(expand(value))
            elif any(isinstance(mark, JobRelativePath) for mark in field.metadata):
                place = value.rpartition(":")[0]
                if place.endswith(".py"):
                    yield str(expand(place))


def _part(kind: str, name: str) -> type[plugins.Plugin] | None:
    """A part; None where it is not installed here, or does not load."""
    try:
        return plugins.load(kind, name)
    except PluginError:
        return None


def _parts(spec: JobSpec) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The parts that a job names, as kind, name and settings."""
    yield "searcher", spec.searcher.name, spec.searcher.settings
    yield "selector", spec.selector.name, spec.selector.settings
    yield "runner", spec.runner.name, spec.runner.settings
    yield "provisioner", spec.provisioner.name, spec.provisioner.settings
    for choice in spec.interpret:
        yield "interpreter", choice.name, choice.settings
    for name, settings in spec.catalogues.items():
        yield "catalogue", name, settings
    if spec.early_stop is not None:
        yield "stopper", spec.early_stop.name, spec.early_stop.settings


def _versions(spec: JobSpec | None) -> dict[str, str]:
    found = {"tradewind": version("tradewind"), "python": platform.python_version()}
    for kind, name, _ in _parts(spec) if spec is not None else ():
        origin = plugins.origin(kind, name) if name in plugins.names(kind) else ()
        found[f"{kind} {name}"] = " ".join(origin).strip() or "not installed"
    return found
