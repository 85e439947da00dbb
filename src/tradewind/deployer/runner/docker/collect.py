"""Brings what a run left in its containers into its folder, and removes them."""

from __future__ import annotations

from functools import partial
from typing import Any

from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import CALL_SECONDS, ContainerEngine
from tradewind.deployer.runner.docker.errors import engine_message
from tradewind.deployer.runner.docker.file_transfer import fetch
from tradewind.deployer.runner.docker.logs import save_logs
from tradewind.deployer.runner.docker.names import ListedContainer
from tradewind.deployer.runner.run_files import folder_error, replace_document
from tradewind.deployer.staging import stage_out
from tradewind.errors import DeployError
from tradewind.problem import RunRequest

_GONE = (404, 409)
RESULT = "result.json"


def collect(engine: ContainerEngine, request: RunRequest, limit: int) -> None:
    """Write the logs of a run into its folder; from an engine that does not see it, the files too.

    Args:
        engine: The engine.
        request: The run.
        limit: The most bytes of files.

    Raises:
        DeployError: The container is gone, the engine does not answer, or the disk is full.
    """
    from docker.errors import APIError

    rows = containers_of(engine, request.run_id)
    if not any(row.role == names.JOB for row in rows):
        raise DeployError(f"the container of run {request.run_id} is gone, and what it printed with it")
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        cut = False
        for row in rows:
            prefix = "" if row.role == names.JOB else f"{row.role}."
            cut |= engine.call(partial(_logs, row=row, request=request, prefix=prefix), CALL_SECONDS)
            if row.role != names.JOB:
                continue
            if not row.labels.get(names.COPIED):
                stage_out(request)
            else:
                engine.call(partial(fetch, container=row.id, request=request, limit=limit), CALL_SECONDS)
        replace_document(request.folder / RESULT, {"truncated": cut})
    except OSError as error:
        raise folder_error(error, request.folder) from error
    except APIError as error:
        raise DeployError(f"what run {request.run_id} left cannot be fetched: {engine_message(error)}") from error


def _logs(client: Any, row: ListedContainer, request: RunRequest, prefix: str) -> bool:
    paths = request.folder / f"{prefix}stdout", request.folder / f"{prefix}stderr"
    return save_logs(client, row.id, paths, request.limits.log_bytes)


def containers_of(engine: ContainerEngine, run_id: str, seconds: float = CALL_SECONDS) -> list[ListedContainer]:
    """All containers of a run; ``seconds`` is how long the engine may take to tell."""
    filters = {"label": [f"{names.RUN}={run_id}"]}
    rows = engine.call(lambda client: client.containers(all=True, filters=filters), seconds)
    return [ListedContainer.of(row) for row in rows]


def remove_containers(engine: ContainerEngine, run_id: str) -> None:
    """Remove all containers and networks of a run; not finding them is success.

    Raises:
        DeployError: The engine does not answer, or refuses.
    """
    from docker.errors import APIError

    filters = {"label": [f"{names.RUN}={run_id}"]}

    def clear(client: Any) -> None:
        rows = client.containers(all=True, filters=filters)
        for row in rows:
            _unless_gone(lambda row=row: client.remove_container(row["Id"], v=True, force=True))
        if rows and not any(names.LOAD in row["Labels"] for row in rows):
            return
        for network in client.networks(filters=filters):
            _unless_gone(lambda network=network: client.remove_network(network["Id"]))

    try:
        engine.call(clear, CALL_SECONDS)
    except APIError as error:
        raise DeployError(f"the containers of run {run_id} cannot be removed: {engine_message(error)}") from error


def _unless_gone(act: Any) -> None:
    from docker.errors import APIError

    try:
        act()
    except APIError as error:
        if error.status_code not in _GONE:
            raise
