"""Requests on a real Slurm and a real Docker: run, watched, killed in between, and gone on with."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines import oned
from tests.engines.docker import IMAGE, PYTHON, DockerEngine, docker  # noqa: F401  (a fixture)
from tests.engines.slurm import SlurmCluster, slurm  # noqa: F401  (a fixture)
from tests.engines.ssh import Sshd, sshd  # noqa: F401  (a fixture)
from tests.service.requests.request_world import WorkerProcess, World, working, world
from tests.service.requests.test_guide import documents
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONTAINER = """
name: boxed
job:
  command: [{python}, -c, "import os, time; print('in a container', flush=True); time.sleep(float(os.environ['LONG']))"]
  env: {{LONG: "{{{{ seconds }}}}"}}
  image: {image}
application:
  backend: boxes
  fields:
    seconds: {{type: number, default: 0}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oned.Oned]:
    yield from oned.running(tmp_path_factory.mktemp("oned"))


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def check_adopted(there: World, row: Any) -> None:
    """See that a request whose worker is killed while it runs is gone on with by the next, and is run once."""
    with WorkerProcess(there, "executing") as first:
        assert first.wait(90) == -signal.SIGKILL
    with working(there.context):
        ended = there.ended(row, 90)
    assert (ended.state, ended.problem) == ("done", "")
    assert ended.study_id is not None
    runs = there.context.store.runs(ended.study_id)
    assert [(run.state.value, run.attempt) for run in runs] == [("done", 1)]
    assert ended.cost == pytest.approx(runs[0].cost)


@pytest.mark.xdist_group("slurm")
class TestSlurm:
    """Figure 4 on a physical cluster: no backend is named, only its scheduler."""

    @pytest.fixture(autouse=True)
    def engine(self, slurm: SlurmCluster, there: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        runner = {"use": "slurm", "partition": "main", "interval": 0.1, "settle": 2.0, "grace": 0.3}
        document = {"deploy": {"runner": runner}, "offers": {"provider": "local"}, "own_code": True}
        there.context.backends.set(there.root, "cluster", document)

    def document(self, script: str, **fields: Any) -> dict[str, Any]:
        """A request for two nodes of the cluster."""
        resources = {"nodes": 2, "cpu": 1, "memory": 512, "time": 60}
        return {"resources": resources, "scheduler": {"name": "slurm"}, "template": script, **fields}

    def test_a_template_runs_on_the_nodes_that_were_asked_for(self, there: World) -> None:
        script = "#!/bin/sh\necho {{ word }} on $SLURM_JOB_NUM_NODES nodes\necho kept > $TRADEWIND_OUTPUTS/file\n"
        with working(there.context):
            row = there.context.requests.submit(there.ann, self.document(script, user_data={"word": "hello"}))
            ended = there.ended(row, 90)
        assert (ended.state, ended.problem) == ("done", "")
        assert there.context.requests.log(there.ann, row.id).text == "hello on 2 nodes\n"
        assert [entry.path for entry in there.context.requests.files(there.ann, row.id)][:1] == ["outputs/file"]
        assert there.stages(row)[-3:] == ["executing", "collecting", "done"]

    def test_a_killed_worker_s_job_is_gone_on_with(self, there: World) -> None:
        script = "#!/bin/sh\nsleep 4; echo over\n"
        row = there.context.requests.submit(there.ann, self.document(script))
        check_adopted(there, row)
        assert there.context.requests.log(there.ann, row.id).text == "over\n"

    def test_a_job_is_cancelled_in_the_queue_of_slurm(self, there: World, slurm: SlurmCluster) -> None:  # noqa: F811
        with working(there.context):
            row = there.context.requests.submit(there.ann, self.document("#!/bin/sh\nsleep 100\n"))
            eventually(lambda: there.get(row).state == "executing", 60)
            assert slurm.jobs()
            there.context.requests.cancel(there.ann, row.id)
            assert there.ended(row, 60).state == "cancelled"
        eventually(lambda: not slurm.jobs(), 20)


@pytest.mark.xdist_group("docker")
class TestDocker:
    """An application with an image, in containers."""

    @pytest.fixture(autouse=True)
    def engine(self, docker: DockerEngine, there: World) -> None:  # noqa: F811
        document = {
            "deploy": {"runner": {"use": "docker", "host": docker.host}},
            "offers": {"provider": "local"},
            "own_code": True,
        }
        there.context.backends.set(there.root, "boxes", document)
        there.context.applications.register(there.ann, CONTAINER.format(python=PYTHON, image=IMAGE))

    def test_a_container_runs_and_its_log_is_read_meanwhile(self, there: World) -> None:
        with working(there.context):
            row = there.context.requests.submit(there.ann, {"application": "boxed", "parameters": {"seconds": 3}})
            eventually(lambda: there.context.requests.log(there.ann, row.id).text == "in a container\n", 60)
            assert not there.get(row).over
            ended = there.ended(row, 60)
        assert (ended.state, ended.problem) == ("done", "")
        part = there.context.requests.log(there.ann, row.id)
        assert (part.text, part.ended) == ("in a container\n", True)

    def test_a_killed_worker_s_container_is_gone_on_with(self, there: World) -> None:
        row = there.context.requests.submit(there.ann, {"application": "boxed", "parameters": {"seconds": 4}})
        check_adopted(there, row)

    def test_a_program_that_fails_in_its_container_is_explained(self, there: World) -> None:
        with working(there.context):
            row = there.context.requests.submit(there.ann, {"application": "boxed", "parameters": {"seconds": -1}})
            ended = there.ended(row, 60)
        assert (ended.state, ended.problem) == ("failed", "the program exited with code 1")
        assert "ValueError" in there.context.requests.log(there.ann, row.id, "stderr").text


@pytest.mark.xdist_group("opennebula")
class TestFigureFour:
    """Paper 5's own document: a virtual cluster of OpenNebula for one job, given back when it is over.

    The machines of the pretended cloud are this one, behind a real SSH server.
    """

    @pytest.fixture(autouse=True)
    def cloud(
        self,
        server: oned.Oned,
        sshd: Sshd,  # noqa: F811
        there: World,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("ONE_TEST_AUTH", f"ada:{oned.USERS['ada'][0]}")
        server.empty()
        prices = tmp_path / "cloud.csv"
        prices.write_text("API Name,Provider,CPU,Memory,Category,Price\nc4,opennebula,4,8,general,0.04\n")
        provisioner = {
            "use": "opennebula",
            "endpoint": server.endpoint,
            "auth": "env:ONE_TEST_AUTH",
            "template": "node",
            "user": "",
            "port": sshd.port,
            "identity": str(sshd.keys.client),
            "interval": 0.1,
        }
        document = {
            "deploy": {"provisioner": provisioner, "runner": {"use": "ssh", "folder": str(tmp_path / "far")}},
            "catalogues": {"csv": {"path": str(prices)}},
            "offers": {"provider": "opennebula"},
            "own_code": True,
        }
        there.context.backends.set(there.root, "virtual", document)

    def test_a_virtual_cluster_for_one_job(self, there: World, server: oned.Oned) -> None:
        document = documents()[2]
        with working(there.context):
            row = there.context.requests.submit(there.root, document)
            ended = there.ended(row, 120)
        assert (ended.state, ended.problem) == ("done", "")
        assert there.context.requests.log(there.root, row.id).text == "value1 on 2 nodes\n"
        assert server.alive() == []
        status = there.context.requests.status(there.root, row.id)
        assert status["status"] == "done"
        assert [host["ip"] for host in status["backend"]["hosts"]] == ["127.0.0.1", "127.0.0.1"]
        assert all(isinstance(host["id"], int) for host in status["backend"]["hosts"])
        assert status["scheduler"]["hosts"] == [f"host-{host['id']}" for host in status["backend"]["hosts"]]
        assert {name: value for name, value in status.items() if name in document} | {
            "backend": document["backend"],
            "scheduler": document["scheduler"],
        } == document
        stages = there.stages(row)
        assert stages == ["pending", "booting", "bootstrapping", "submitting", "executing", "collecting", "done"]
        assert ended.cost > 0

    def test_a_killed_worker_leaves_no_machine_behind(self, there: World, server: oned.Oned) -> None:
        document = {"resources": {"nodes": 1}, "backend": {"name": "virtual"}, "template": "#!/bin/sh\necho over\n"}
        row = there.context.requests.submit(there.ann, document)
        with WorkerProcess(there, "booting") as first:
            assert first.wait(90) == -signal.SIGKILL
        with working(there.context):
            ended = there.ended(row, 120)
        assert (ended.state, ended.problem) == ("done", "")
        assert server.alive() == []
