"""The examples in containers are searched for real, shortened, with Tradewind's own image in the place of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.docker import IMAGE, DockerEngine, docker  # noqa: F401  (a fixture)
from tests.examples.shortened import assert_searched, shortened

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def images(docker: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
    monkeypatch.setenv("DOCKER_HOST", docker.host)
    docker.docker("tag", IMAGE, "python:3.12-slim")
    yield
    assert docker.docker("ps", "-aq").stdout == b""


@pytest.mark.slow
@pytest.mark.example
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("images")
def test_a_search_in_containers(tmp_path: Path) -> None:
    job = shortened("docker", tmp_path, lambda job: job["job"]["command"].__setitem__(-1, "--width=60"), trials=1)
    result = assert_searched(job, tmp_path / "home", trials=1)
    assert result["best"]["observation"]["metrics"]["inside"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("images")
def test_a_search_with_a_load_generator(tmp_path: Path) -> None:
    job = shortened("docker", tmp_path, lambda job: None, trials=1, file="load.yaml")
    result = assert_searched(job, tmp_path / "home", trials=1)
    assert result["best"]["observation"]["metrics"]["p95_ms"] > 0
