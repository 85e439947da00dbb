"""Creates and starts the containers of a run, once however often it is submitted."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind.deployer.checkpoints import put_checkpoint
from tradewind.deployer.environment import OUTPUTS, check_workdir, resolve_secrets
from tradewind.deployer.runner.architectures import (
    architecture_error,
    architecture_of,
    sent_program,
    wrong_architecture,
)
from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.container_spec import container_spec
from tradewind.deployer.runner.docker.engine import CALL_SECONDS, ContainerEngine
from tradewind.deployer.runner.docker.errors import (
    dropped_limit_error,
    engine_message,
    missing_limit_error,
    pull_error,
    start_error,
)
from tradewind.deployer.runner.docker.file_transfer import containers_of, remove_containers, send
from tradewind.deployer.runner.docker.names import InspectedContainer, ListedContainer
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.deployer.runner.run_files import folder_error
from tradewind.deployer.runner.warden.slots import Slot
from tradewind.errors import DeployError, ImageError, TradewindError
from tradewind.problem import RunRequest

_log = logging.getLogger("tradewind.deployer")

_IN_FLIGHT_SECONDS = 5.0
_MISSING, _TAKEN = 404, 409


class ContainerStart:
    """One submission of a run to an engine: it is started, or found to be started already.

    The container's name is the lock: whoever creates it starts it. One that another process created, and did not
    start, is started only when no order to start it can be on its way any more.

    Args:
        engine: The engine.
        settings: The settings of the runner.
        request: The run.
        cache: The folder in which archives of working folders are kept.
        asked: Called right before the engine is asked to start the run, with the time of the engine's clock and the id
            of the container.
    """

    def __init__(
        self,
        engine: ContainerEngine,
        settings: DockerSettings,
        request: RunRequest,
        cache: Path,
        asked: Callable[[float, str], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._request = request
        self._cache = cache
        self._asked = asked
        self._secrets: Mapping[str, str] | None = None
        self._pulled: set[str] = set()
        self._slot: Slot | None = None

    def prepare(self) -> None:
        """Pull the images that are not there: that takes long, and no CPUs of this machine are kept for it.

        Raises:
            TradewindError: One cannot be had, or is for another processor architecture.
        """
        load, known = self._request.load, self._engine.fitting_images
        if self._request.image not in known and containers_of(self._engine, self._request.run_id):
            return  # it was started before, or as good as that
        images = dict.fromkeys(filter(None, (self._request.image, load.image if load is not None else None)))
        for image in images:
            absent = image not in known and not self._has(image)
            if self._settings.pull == "always" or (absent and self._settings.pull == "missing"):
                self._pull(image)
            self._check_architecture(image)

    def _has(self, image: str) -> bool:
        from docker.errors import APIError

        try:
            self._engine.call(lambda client: client.inspect_image(image), CALL_SECONDS)
        except APIError as error:
            return bool(error.status_code != _MISSING)
        return True

    def run(self, slot: Slot | None = None, expires: float | None = None) -> Mapping[str, int]:
        """Start the run.

        Args:
            slot: The part of this machine that it has; None where it takes no account.
            expires: When anyone may destroy it, in seconds since the epoch: later than asked for if it has
                waited.

        Returns:
            Port of the job -> port of the machine.

        Raises:
            DeployError: It cannot be started.
            MissingProgramError: Its command is not in the image.
        """
        self._slot = slot
        if expires is not None:
            self._request = replace(self._request, expires=expires)
        request = self._request
        if not request.image:
            raise ImageError("runner docker runs jobs in containers, and the job names no image", hint="set job.image")
        there = {row.role: row for row in containers_of(self._engine, request.run_id)}
        job = there.get(names.JOB)
        if job is not None and job.labels.get(names.OWNER) != request.owner:
            raise DeployError(
                f"run {request.run_id} is there already, of another owner", hint="end that one", retryable=False
            )
        if job is not None and job.cancelled:
            raise DeployError(f"run {request.run_id} was cancelled before it started", retryable=False)
        try:
            if request.load is None:
                return self._ensure(names.JOB, job, self._settings.network, start=True)
            network = self._network()
            self._ensure(names.JOB, job, network, start=False)
            if job is not None and job.state != "created":
                return {}
            return self._ensure(names.APPLICATION, there.get(names.APPLICATION), network, start=True)
        except TradewindError as error:
            # What could not be started keeps no name; what cannot be asked may be running.
            if not (isinstance(error, DeployError) and error.retryable):
                self._clear()
            raise

    def _clear(self) -> None:
        rows = containers_of(self._engine, self._request.run_id)
        if not any(row.alive or row.state == "exited" for row in rows if row.role == names.JOB):
            remove_containers(self._engine, self._request.run_id)

    def _ensure(self, role: str, found: ListedContainer | None, network: str, *, start: bool) -> Mapping[str, int]:
        """Make a container of the run unless it is there, and start it where that is wanted."""
        ours = found is None
        container_id = self._create(role, network) if found is None else found.id
        if container_id is None:
            container_id, ours = self._named(role), False
        if not start:
            if ours:
                self._send(container_id)
            return {}
        if not ours:
            facts = self._settled(container_id)
            if facts.started or facts.error:
                return facts.ports
        self._send(container_id)
        self._asked(self._engine.clock(), container_id)
        self._start(container_id, role)
        return self._facts(container_id).ports if self._request.ports else {}

    def _settled(self, container_id: str) -> InspectedContainer:
        """Wait until a container of another process has started, or that process can no longer be about to start it."""
        end = time.monotonic() + _IN_FLIGHT_SECONDS
        facts = self._facts(container_id)
        while facts.state == "created" and not facts.error and time.monotonic() < end:
            time.sleep(0.1)
            facts = self._facts(container_id)
        return facts

    def _facts(self, container_id: str) -> InspectedContainer:
        return InspectedContainer.of(
            self._engine.call(lambda client: client.inspect_container(container_id), CALL_SECONDS)
        )

    def _create(self, role: str, network: str) -> str | None:
        """Create a container; None when its name is taken."""
        from docker.errors import APIError

        request = self._request
        self._prepare(role)
        if self._secrets is None:
            self._secrets = resolve_secrets(request.secrets)
        document = container_spec(request, role, self._engine, self._settings, self._secrets, self._slot)
        lacking = missing_limit_error(document["HostConfig"], self._engine.facts(), str(self._engine.address))
        if lacking is not None:
            raise lacking
        document["HostConfig"]["NetworkMode"] = network
        if role == names.APPLICATION:
            document["NetworkingConfig"] = {"EndpointsConfig": {network: {"Aliases": [names.APPLICATION]}}}
        name, image = names.container_name(request.run_id, role), str(document["Image"])
        if self._settings.pull == "always" and image not in self._pulled:
            self._pull(image)
        self._check_architecture(image)
        while True:
            try:
                made = self._engine.call(
                    lambda client: client.create_container_from_config(document, name), CALL_SECONDS
                )
                self._check_warnings(document["HostConfig"], made.get("Warnings") or ())
                return str(made["Id"])
            except APIError as error:
                if error.status_code == _TAKEN or "already in use" in engine_message(error):
                    return None
                absent = error.status_code == _MISSING or "image not known" in engine_message(error)
                if not absent or image in self._pulled or self._settings.pull == "never":
                    raise self._refusal(error, role) from error
                self._pull(image)
                self._check_architecture(image)

    def _check_architecture(self, image: str) -> None:
        """Raise where an image that is there is certainly for another processor architecture than the machine's."""
        from docker.errors import APIError

        if image in self._engine.fitting_images:
            return
        try:
            facts = self._engine.call(lambda client: client.inspect_image(image), CALL_SECONDS)
        except APIError:
            return  # it is not there yet, or what is wrong with it is said when its container is made
        made_for, machine = architecture_of(str(facts.get("Architecture") or "")), self._engine.architecture
        if not self._engine.runs(made_for):
            reason = wrong_architecture(f"the image {image}", machine, made_for)
            raise architecture_error(f"{reason}, and nothing emulates it there")
        self._engine.fitting_images.add(image)

    def _check_warnings(self, wanted: Mapping[str, Any], warnings: Sequence[str]) -> None:
        """Log the engine's warnings about a container that it has created, or raise where it lacks a limit."""
        place = str(self._engine.address)
        lacking = dropped_limit_error(wanted, warnings, place)
        if lacking is not None:
            raise lacking
        for words in warnings:
            _warn_once(place, words)

    def _prepare(self, role: str) -> None:
        request = self._request
        check_workdir(request.workdir)
        try:
            (request.folder / OUTPUTS).mkdir(parents=True, exist_ok=True)
            if request.checkpoint is not None and role == names.JOB and self._engine.mounts:
                put_checkpoint(request.checkpoint, request.folder)
        except OSError as error:
            raise folder_error(error, request.folder) from error

    def _named(self, role: str) -> str:
        """The id of the container that has our name, if it belongs to our run."""
        name = names.container_name(self._request.run_id, role)
        facts = self._facts(name)
        mine = (self._request.run_id, self._request.owner)
        if (facts.labels.get(names.RUN), facts.labels.get(names.OWNER)) != mine:
            raise DeployError(
                f"the name {name} is taken by a container that is not ours", hint=f"docker rm {name}", retryable=False
            )
        return facts.id

    def _network(self) -> str:
        """The id of the network of a run with a load generator, which is made unless it is there."""
        from docker.errors import APIError

        request = self._request
        labels = {
            names.RUN: request.run_id,
            names.OWNER: request.owner,
            names.EXPIRES: repr(request.expires),
            names.FOLDER: str(request.folder.absolute()),
        }
        filters = {"label": [f"{names.RUN}={request.run_id}"]}
        name = names.container_name(request.run_id)

        def ensure(client: Any) -> str:
            found = sorted(client.networks(filters=filters), key=lambda each: (str(each.get("Created")), each["Id"]))
            return str(found[0]["Id"] if found else client.create_network(name, driver="bridge", labels=labels)["Id"])

        try:
            return self._engine.call(ensure, CALL_SECONDS)
        except APIError as error:
            raise self._refusal(error, names.APPLICATION) from error

    def _pull(self, image: str) -> None:
        from docker.errors import APIError, DockerException

        def pull(client: Any) -> None:
            # Without a tag the package would pull every tag that there is.
            whole = image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
            for line in client.pull(whole, stream=True, decode=True):
                if "error" in line:
                    raise DockerException(line["error"])

        self._pulled.add(image)
        try:
            self._engine.call(pull, self._settings.pull_seconds)
        except APIError as error:
            raise pull_error(error, image) from error
        except DeployError as error:
            raise _pull_error(error, image) from error

    def _send(self, container_id: str) -> None:
        from docker.errors import APIError

        if self._engine.mounts:
            return
        limit = self._settings.copy_limit
        try:
            self._engine.call(
                lambda client: send(client, container_id, self._request, self._cache, limit), CALL_SECONDS
            )
        except APIError as error:
            raise self._refusal(error, names.JOB) from error

    def _start(self, container_id: str, role: str) -> None:
        from docker.errors import APIError

        try:
            self._engine.call(lambda client: client.start(container_id), CALL_SECONDS)
        except APIError as error:
            raise self._refusal(error, role) from error

    def _refusal(self, error: Any, role: str) -> TradewindError:
        request = self._request
        load = request.load if role == names.JOB else None
        image = (load.image if load else None) or request.image or ""
        program = (load.argv if load else request.argv)[0]
        return start_error(
            error,
            image=image,
            program=program,
            place=str(self._engine.address),
            machine=self._engine.architecture,
            script=sent_program(program, request.workdir) == "",
        )


@functools.cache
def _warn_once(place: str, words: str) -> None:
    _log.warning("the container engine at %s: %s", place, words)


def _pull_error(error: DeployError, image: str) -> TradewindError:
    """The typed error for a registry's refusal, which comes as a line of an answer that began well."""
    cause = error.__cause__
    named = pull_error(cause, image) if cause is not None and type(cause).__name__ == "DockerException" else error
    return named if isinstance(named, TradewindError) else ImageError(str(error))
