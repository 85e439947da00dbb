"""The OpenNebula provisioner, against a server that behaves like oned."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError
from tests.deployer.helpers import deployer_over, drive, request_for, row
from tests.deployer.provisioner.opennebula.kills import kill_everywhere
from tests.engines import oned as engine
from tests.engines.oned import Oned
from tests.engines.ssh import Sshd, sshd
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.opennebula import provisioner as opennebula
from tradewind.deployer.provisioner.opennebula.machines import start_script
from tradewind.deployer.provisioner.opennebula.provisioner import OpenNebulaProvisioner
from tradewind.deployer.provisioner.opennebula.rpc import LostAnswerError, OneClient, WrongStateError, parse_xml
from tradewind.deployer.provisioner.opennebula.settings import OpenNebulaSettings
from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    OfferRefusedError,
    PrerequisiteError,
    SpecError,
    TeardownError,
    UnreachableError,
)
from tradewind.problem import Offer, RunState
from tradewind.testing.provisioners import Bench, ProvisionerConformance, settled

pytestmark = pytest.mark.xdist_group("opennebula")

__all__ = ["sshd"]

OFFER = Offer("opennebula", "medium", 2, 4, 0.1, nodes=2)
LATER = 4e9
OWNER = "ada's study <&>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oned]:
    yield from engine.running(tmp_path_factory.mktemp("oned"))


@pytest.fixture
def oned(server: Oned, monkeypatch: pytest.MonkeyPatch) -> Oned:
    monkeypatch.setenv("ONE_TEST_AUTH", f"ada:{engine.USERS['ada'][0]}")
    server.empty()
    return server


def cloud(oned: Oned, folder: Path, **settings: Any) -> OpenNebulaProvisioner:
    given = {
        "endpoint": oned.endpoint,
        "auth": "env:ONE_TEST_AUTH",
        "template": "node",
        "ready": "running",
        "interval": 0.02,
        "timeout": 5,
        **settings,
    }
    return OpenNebulaProvisioner(settings=OpenNebulaSettings(**given), data_folder=folder)


def ready(provisioner: OpenNebulaProvisioner, run_id: str = "run-1", offer: Offer = OFFER) -> Cluster:
    return settled(provisioner, provisioner.make(run_id, OWNER, LATER, offer), ClusterState.READY)


class TestOpenNebula(ProvisionerConformance):
    offer = OFFER

    @pytest.fixture
    def bench(self, oned: Oned, tmp_path: Path) -> Iterator[Bench]:
        yield partial(cloud, oned, tmp_path)
        assert oned.alive() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"context": {"SSH_PUBLIC_KEY": "x"}}, "use the setting public_key"),
        ({"context": {"start_script_base64": "x"}}, "use the setting start_script"),
        ({"context": {"NETWORK": "NO"}}, "without a network"),
        ({"jump": "http://bastion"}, "http:// is no way"),
    ],
)
def test_what_would_lock_us_out_of_machines_is_refused_when_it_is_read(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OpenNebulaSettings(template="any", **given)
    assert OpenNebulaSettings(template="any", context={"NETWORK": "yes", "REPORT_READY": "YES"}).context


def test_machines_are_as_the_offer_and_the_settings_say(oned: Oned, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    (tmp_path / "start").write_text("#!/bin/bash\necho mine")
    provisioner = cloud(
        oned,
        tmp_path,
        identity=str(tmp_path / "key"),
        user="debian",
        port=2222,
        network="lan",
        cluster="fast",
        disk="20GiB",
        context={"SET_HOSTNAME": "<x>"},
        start_script=str(tmp_path / "start"),
        shared="/srv/shared",
    )
    cluster = ready(provisioner)
    first, second = sorted(oned.alive(), key=lambda vm: int(vm["id"]))
    extra = ElementTree.fromstring(first["extra"])
    assert [extra.findtext(name) for name in ("CPU", "VCPU", "MEMORY")] == ["2", "2", "4096"]
    assert extra.findtext("TRADEWIND_OWNER") == OWNER
    assert extra.findtext("SCHED_REQUIREMENTS") == '(ARCH = x86_64) & (CLUSTER = "fast")'
    assert [extra.findtext(f"DISK/{name}") for name in ("IMAGE", "CACHE", "SIZE")] == ["debian", "none", "20480"]
    assert extra.findtext("NIC/NETWORK") == "lan"
    assert [extra.findtext(f"SCHED_ACTION/{name}") for name in ("ACTION", "TIME")] == ["terminate-hard", "4000000000"]
    context = {each.tag: each.text for each in extra.iterfind("CONTEXT/*")}
    assert context["SSH_PUBLIC_KEY"] == "$USER[SSH_PUBLIC_KEY]\nssh-ed25519 AAAA me"
    assert (context["SET_HOSTNAME"], context["TOKEN"], context["NETWORK"]) == ("<x>", "YES", "YES")
    script = base64.b64decode(context["START_SCRIPT_BASE64"] or "").decode()
    assert base64.b64encode(b"#!/bin/sh\necho theirs").decode() in script
    assert base64.b64encode(b"#!/bin/bash\necho mine").decode() in script
    assert (first["name"], second["name"]) == ("tradewind-run-1-0", "tradewind-run-1-1")
    machine = cluster.machines[0]
    assert (machine.address, machine.data["shared"]) == ("127.0.0.1", "/srv/shared")
    ssh = machine.data["ssh"]
    assert (ssh["user"], ssh["port"], ssh["identity"]) == ("debian", 2222, str(tmp_path / "key"))
    assert ssh["accept_new"]
    assert json.loads(json.dumps(cluster.data)) == cluster.data
    Path(ssh["known_hosts"]).write_text("key")
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)
    assert not Path(ssh["known_hosts"]).exists()


def test_machines_turn_themselves_off_and_opennebula_terminates_them(oned: Oned, tmp_path: Path) -> None:
    provisioner = cloud(oned, tmp_path)
    provisioner.make("run-1", OWNER, time.time() + 0.5, OFFER)
    eventually(lambda: oned.alive() == [])
    assert provisioner.find(OWNER) == []
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "shutdown").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    (tools / "shutdown").chmod(0o755)
    for seconds, minutes in ((600, 10), (30, 1), (-50, 1)):
        script = start_script(int(time.time()) + seconds, [])
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["sh", "-c", script], check=True, env={**os.environ, "PATH": path})
        assert (tmp_path / "said").read_text().split() == ["-P", f"+{minutes}"]


def test_a_partial_cluster_is_given_back(oned: Oned, tmp_path: Path) -> None:
    oned.config(quota=3)
    provisioner = cloud(oned, tmp_path)
    with pytest.raises(CapacityError, match=r"limit of 3 reached.*quota.*larger quota") as caught:
        provisioner.make("run-1", OWNER, LATER, OFFER.times(4))
    assert caught.value.retryable
    assert oned.alive() == []
    assert not any(vm["pstime"] for vm in oned.state()["vms"].values())


def test_no_host_for_too_long_is_no_capacity(oned: Oned, tmp_path: Path) -> None:
    oned.config(hosts=1)
    provisioner = cloud(oned, tmp_path, queue_seconds=1)
    cluster = settled(provisioner, provisioner.make("run-1", OWNER, LATER, OFFER), ClusterState.FAILED)
    assert "No host with enough capacity" in cluster.reason
    assert cluster.crowded
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


@pytest.mark.parametrize("failure", ["PROLOG_FAILURE", "BOOT_FAILURE"])
def test_a_machine_that_does_not_come_up_says_why(oned: Oned, tmp_path: Path, failure: str) -> None:
    oned.config(fails={"1": failure})
    provisioner = cloud(oned, tmp_path)
    cluster = settled(provisioner, provisioner.make("run-1", OWNER, LATER, OFFER), ClusterState.FAILED)
    assert failure in cluster.reason
    assert "Error copying image" in cluster.reason
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


@pytest.mark.parametrize(
    ("settings", "config", "error", "words"),
    [
        ({"template": "nothing"}, {}, PrerequisiteError, "there is no template named 'nothing'"),
        ({"template": "99"}, {}, PrerequisiteError, r"virtual machine template \[99\]"),
        ({"template": "both"}, {}, PrerequisiteError, "2 templates"),
        ({"template": "twice"}, {}, ImageError, "not-there"),
        ({"network": "wan"}, {}, PrerequisiteError, "network with name: wan"),
        ({}, {"leases": 0}, CapacityError, "lease"),
        ({}, {"quota": 0}, CapacityError, "quota"),
        ({}, {"errors": {"template.instantiate": ["Not enough space in datastore", 0x2000]}}, CapacityError, "space"),
        ({}, {"errors": {"template.instantiate": ["restricted attribute CPU", 0x200]}}, CredentialsError, "rights"),
        ({}, {"errors": {"template.instantiate": ["wrong parameter", 0x1000]}}, DeployError, "wrong parameter"),
        ({}, {"errors": {"template.instantiate": ["the database", 0x2000]}}, DeployError, "the database"),
        ({}, {"errors": {"vmpool.infoextended": ["busy", 0x8000]}}, DeployError, "busy"),
        ({"auth": "env:ONE_OTHER_AUTH"}, {}, CredentialsError, "does not know the user 'eve'"),
        ({"auth": "env:ONE_NOT_SET"}, {}, CredentialsError, "no variable ONE_NOT_SET"),
        ({"auth": "file:/not/there"}, {}, CredentialsError, "cannot be read"),
        ({"auth": "env:HOME"}, {}, CredentialsError, "user:password"),
        ({"start_script": "/not/there"}, {}, DeployError, "start_script"),
        ({"public_key": "/not/there"}, {}, DeployError, "public_key"),
        ({"endpoint": "http://127.0.0.1:9/RPC2"}, {}, UnreachableError, "cannot be reached"),
        ({"timeout": 0.2}, {"slow": {"template.info": 0.6}}, UnreachableError, "did not answer"),
    ],
)
def test_every_refusal_is_one_typed_error(
    oned: Oned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    config: dict[str, Any],
    error: type[DeployError],
    words: str,
) -> None:
    monkeypatch.setenv("ONE_OTHER_AUTH", "eve:p4ss")
    oned.config(**config)
    with pytest.raises(error, match=words) as caught:
        cloud(oned, tmp_path, **settings).make("run-1", OWNER, LATER, OFFER)
    assert type(caught.value) is error or issubclass(type(caught.value), UnreachableError)
    assert "p4ss" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    oned.config()
    assert oned.alive() == []


def test_what_is_not_oned_is_unreachable(tmp_path: Path) -> None:
    answers = [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html></p",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n" + "<x>é".encode("utf-16") + b"1234",
        b"garbage",
        b"",
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = OneClient(f"http://127.0.0.1:{listener.getsockname()[1]}/RPC2", "a:b", 2)
        for answer in answers:
            threading.Thread(target=_say, args=(listener, answer), daemon=True).start()
            with pytest.raises(UnreachableError):
                client.call("system.version")


def _say(listener: socket.socket, answer: bytes) -> None:
    with listener.accept()[0] as connection:
        connection.recv(65536)
        connection.sendall(answer)


def test_xml_with_entities_is_refused() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    with pytest.raises(UnreachableError, match="document type"):
        parse_xml(bomb)


def test_offers_of_others_are_refused(oned: Oned, tmp_path: Path) -> None:
    provisioner = cloud(oned, tmp_path, providers=("opennebula", "institute"))
    assert provisioner.refuses(OFFER) == ""
    assert provisioner.refuses(Offer("institute", "m", 1, 1, 0.1)) == ""
    assert "opennebula, institute" in provisioner.refuses(Offer("aws", "m", 1, 1, 0.1))
    assert "spot" in provisioner.refuses(Offer("institute", "m", 1, 1, 0.1, spot=True))


def test_settings_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({}, {"template": "x", "endpoint": "ftp://x"}, {"template": "x", "auth": "me:secret"},
                  {"template": "x", "disk": "big"}, {"template": "x", "cluster": 'a" | "b'}):  # fmt: skip
        with pytest.raises(SpecError):
            plugins.create("provisioner", "opennebula", wrong, data_folder=tmp_path)
    monkeypatch.setenv("ONE_XMLRPC", "http://cloud/RPC2")
    (tmp_path / "auth").write_text("ada:x\n")
    monkeypatch.setenv("ONE_AUTH", str(tmp_path / "auth"))
    settings = OpenNebulaSettings(template="x")
    assert (settings.address(), settings.session()) == ("http://cloud/RPC2", "ada:x")


@pytest.mark.parametrize("kind", ["lost", "dropped"])
def test_a_lost_answer_creates_no_second_machine(
    oned: Oned, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    oned.config(**{kind: {"template.instantiate": 1}})
    provisioner = cloud(oned, tmp_path)
    if kind == "lost":
        cluster = ready(provisioner)
        assert oned.calls("template.instantiate") == len(cluster.machines) == len(oned.alive()) == 2
        settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)
        return
    monkeypatch.setattr(opennebula, "_LOST_SECONDS", (0.05, 0.05))
    with pytest.raises(LostAnswerError):
        provisioner.make("run-1", OWNER, LATER, OFFER)
    assert oned.alive() == []


@pytest.mark.parametrize("method", ["vm.info", "vm.action", "vmpool.infoextended"])
def test_other_lost_answers_leave_nothing(oned: Oned, tmp_path: Path, method: str) -> None:
    oned.config(lost={method: 1})
    provisioner = cloud(oned, tmp_path)
    try:
        cluster = ready(provisioner)
    except UnreachableError:
        oned.config()
        cluster = ready(provisioner)
    assert len(oned.alive()) == 2
    oned.config(lost={method: 1})
    try:
        gone = provisioner.destroy(cluster)
    except TeardownError:
        gone = provisioner.destroy(cluster)
    settled(provisioner, gone, ClusterState.GONE)
    assert oned.alive() == []


def test_a_machine_that_was_created_too_late_never_starts(
    oned: Oned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call is answered so late that another process has made the machine again by then."""
    oned.config(slow={"template.instantiate": 0.6})
    hasty = cloud(oned, tmp_path, timeout=0.2)
    one = Offer("opennebula", "small", 1, 1, 0.1)
    monkeypatch.setattr(opennebula, "_LOST_SECONDS", ())
    with pytest.raises(LostAnswerError):
        hasty.make("run-1", OWNER, LATER, one)
    oned.config()
    patient = cloud(oned, tmp_path)
    cluster = ready(patient, offer=one)
    eventually(lambda: oned.calls("template.instantiate") == 2)
    eventually(lambda: len(patient.poll([cluster])["run-1"].machines) == 1 and len(oned.alive()) == 1)
    late = list(oned.state()["vms"].values())[-1]
    assert late["pstime"] == 0, "the second one has taken a host"
    settled(patient, patient.destroy(cluster), ClusterState.GONE)


def test_wrong_states_are_tried_again(oned: Oned, tmp_path: Path) -> None:
    oned.config(prolog=0.6)
    provisioner = cloud(oned, tmp_path)
    cluster = provisioner.make("run-1", OWNER, LATER, OFFER)
    client = provisioner._oned()
    with pytest.raises(WrongStateError, match="PROLOG"):
        client.call("vm.action", "terminate-hard", int(cluster.machines[0].id))
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)
    assert oned.alive() == []


def test_machines_that_hang_between_states(oned: Oned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users are told and it is tried again; administrators may delete them from any state."""
    monkeypatch.setattr(opennebula, "_PATIENCE_SECONDS", 0.6)
    monkeypatch.setattr(opennebula, "_RECOVER_SECONDS", 0.2)
    oned.config(boot=3600)
    provisioner = cloud(oned, tmp_path)
    cluster = provisioner.make("run-1", OWNER, LATER, OFFER)
    eventually(lambda: all(vm["lcm"] == engine.BOOT for vm in oned.alive()))
    with pytest.raises(TeardownError, match=r"wrong state BOOT.*tried again"):
        provisioner.destroy(cluster)
    assert [each.run_id for each in provisioner.find(OWNER)] == ["run-1"]
    oned.empty()
    oned.config(boot=3600)
    monkeypatch.setenv("ONE_TEST_AUTH", "oneadmin:opennebula")
    admin = cloud(oned, tmp_path)
    cluster = admin.make("run-2", OWNER, LATER, OFFER)
    settled(admin, admin.destroy(cluster), ClusterState.GONE)
    assert oned.alive() == []


@pytest.mark.parametrize("action", ["poweroff-hard", "undeploy-hard", "suspend"])
def test_machines_that_somebody_stopped_can_be_given_back(oned: Oned, tmp_path: Path, action: str) -> None:
    provisioner = cloud(oned, tmp_path)
    cluster = ready(provisioner)
    oned.call("vm.action", action, int(cluster.machines[1].id))
    cluster = settled(provisioner, cluster, ClusterState.FAILED)
    assert f"virtual machine {cluster.machines[1].id}" in cluster.reason
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


def test_held_and_pending_machines_can_be_given_back(oned: Oned, tmp_path: Path) -> None:
    oned.config(pending=3600)
    provisioner = cloud(oned, tmp_path)
    cluster = provisioner.make("run-1", OWNER, LATER, OFFER)
    assert provisioner.destroy(cluster).state is ClusterState.GONE
    extra = "<TEMPLATE><TRADEWIND_RUN>run-2</TRADEWIND_RUN><TRADEWIND_OWNER>x</TRADEWIND_OWNER></TEMPLATE>"
    oned.call("template.instantiate", 0, "held", True, extra, False, user="ada")
    [held] = provisioner.find("x")
    assert provisioner.destroy(held).state is ClusterState.GONE
    assert oned.alive() == []


def test_a_machine_that_somebody_destroyed_is_missed(oned: Oned, tmp_path: Path) -> None:
    provisioner = cloud(oned, tmp_path)
    cluster = ready(provisioner)
    oned.call("vm.action", "terminate-hard", int(cluster.machines[0].id))
    cluster = settled(provisioner, cluster, ClusterState.FAILED)
    assert "1 of 2 virtual machines are gone" in cluster.reason
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


def test_an_unknown_state_counts_as_alive(oned: Oned, tmp_path: Path, server: Oned) -> None:
    provisioner = cloud(oned, tmp_path)
    cluster = ready(provisioner)
    server.kill()
    try:
        began = time.monotonic()
        time.sleep(0.05)
        unknown = provisioner.poll([cluster])["run-1"]
        assert time.monotonic() - began < 5
        assert unknown.state is ClusterState.UNKNOWN
        assert unknown.machines == cluster.machines
        with pytest.raises(TeardownError, match="run-1"):
            provisioner.destroy(cluster)
        with pytest.raises(UnreachableError):
            provisioner.find(OWNER)
    finally:
        server.start()
    assert settled(provisioner, cluster, ClusterState.READY)
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


def test_a_slow_oned_does_not_hold_up_the_others(oned: Oned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opennebula, "_POLL_SECONDS", 0.3)
    provisioner = cloud(oned, tmp_path)
    cluster = ready(provisioner)
    oned.config(slow={"vmpool.infoextended": 4.0})
    time.sleep(0.05)
    began = time.monotonic()
    assert provisioner.poll([cluster])["run-1"].state is ClusterState.UNKNOWN
    assert time.monotonic() - began < 3.5
    oned.config()
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


def test_one_listing_serves_all_clusters_for_a_while(oned: Oned, tmp_path: Path) -> None:
    provisioner = cloud(oned, tmp_path, interval=30)
    clusters = [provisioner.make(f"run-{i}", OWNER, LATER, OFFER.times(1)) for i in range(4)]
    before = oned.calls("vmpool.infoextended")
    for _ in range(50):
        assert set(provisioner.poll(clusters)) == {f"run-{i}" for i in range(4)}
    # One, and another where the machine of the tests stood still while it was read.
    assert oned.calls("vmpool.infoextended") <= before + 2
    for cluster in clusters:
        provisioner.destroy(cluster)
    eventually(lambda: oned.alive() == [])


def test_long_lists_are_read_page_by_page(oned: Oned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opennebula, "_PAGE", 3)
    for number in range(8):
        tags = f"<TRADEWIND_RUN>run-{number}</TRADEWIND_RUN><TRADEWIND_OWNER>x</TRADEWIND_OWNER>"
        oned.call("template.instantiate", 0, "n", True, f"<T>{tags}</T>", False, user="ada")
    oned.call("template.instantiate", 0, "other", True, "<T/>", False, user="bob")
    provisioner = cloud(oned, tmp_path)
    assert {each.run_id for each in provisioner.find("x")} == {f"run-{number}" for number in range(8)}
    # A machine that goes away between two pages moves the rest: the list is read again.
    client, victims = provisioner._oned(), [vm["id"] for vm in oned.alive() if vm["name"] == "n"][-2:]
    plain = client.call

    def meddling(method: str, *arguments: Any, **options: Any) -> Any:
        if method == "vmpool.infoextended" and arguments[1] > 0 and victims:
            oned.call("vm.action", "terminate-hard", victims.pop())
        return plain(method, *arguments, **options)

    monkeypatch.setattr(client, "call", meddling)
    assert {each.run_id for each in provisioner.find("x")} == {f"run-{number}" for number in range(6)}


def test_ready_means_that_ssh_answers(oned: Oned, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        provisioner = cloud(oned, tmp_path, ready="ssh", port=listener.getsockname()[1])
        cluster = provisioner.make("run-1", OWNER, LATER, OFFER)
        eventually(lambda: all(vm["lcm"] == engine.RUNNING for vm in oned.alive()))
        listener.settimeout(5)

        def greet(words: bytes, times: int) -> None:
            for _ in range(times):
                with listener.accept()[0] as connection:
                    connection.sendall(words)

        greeter = threading.Thread(target=greet, args=(b"HTTP", 1))
        greeter.start()
        assert provisioner.poll([cluster])["run-1"].state is ClusterState.BOOTING
        greeter.join()
        while True:  # what the last look has left in the queue of connections
            try:
                listener.settimeout(0.2)
                listener.accept()[0].close()
            except TimeoutError:
                break
        listener.settimeout(5)
        greeter = threading.Thread(target=greet, args=(b"SSH-2.0-test\r\n", 2))
        greeter.start()
        time.sleep(0.05)
        cluster = provisioner.poll([cluster])["run-1"]
        greeter.join()
        assert cluster.state is ClusterState.READY
    # Another process is told by oned since when it is ready, and need not ask again.
    other = cloud(oned, tmp_path, ready="ssh", port=1)
    [found] = other.find(OWNER)
    assert found.setup_seconds == cluster.setup_seconds > 0
    settled(other, other.destroy(found), ClusterState.GONE)


def test_who_looks_at_everybodys_machines_does_not_call_them_ready(oned: Oned, tmp_path: Path) -> None:
    """What ready means is a setting, and another study's may ask for less."""
    provisioner = cloud(oned, tmp_path, ready="ssh", port=1)
    cluster = provisioner.make("run-1", OWNER, LATER, OFFER)
    eventually(lambda: all(vm["lcm"] == engine.RUNNING for vm in oned.alive()))
    other = cloud(oned, tmp_path / "other", ready="running")
    [found] = other.find(None)
    assert found.state is ClusterState.READY
    assert oned.calls("vm.update") == 0
    assert provisioner.poll([cluster])["run-1"].state is ClusterState.BOOTING
    settled(other, other.destroy(found), ClusterState.GONE)
    assert oned.calls("vm.update") == 0


def test_setup_is_known_where_the_list_has_no_times(oned: Oned, tmp_path: Path) -> None:
    oned.config(times=False, pending=1.0)
    provisioner = cloud(oned, tmp_path)
    cluster = ready(provisioner)
    assert 1.0 < cluster.setup_seconds < 30
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


def test_nobody_destroys_what_is_another_users(oned: Oned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner = cloud(oned, tmp_path)
    cluster = ready(provisioner)
    monkeypatch.setenv("ONE_TEST_AUTH", "bob:b0b")
    bob = cloud(oned, tmp_path)
    assert bob.find(None) == []
    with pytest.raises(TeardownError, match="Not authorized"):
        bob.destroy(cluster)
    assert len(oned.alive()) == 2
    monkeypatch.setenv("ONE_TEST_AUTH", "oneadmin:opennebula")
    assert [each.run_id for each in cloud(oned, tmp_path).find(None)] == ["run-1"]
    settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)


def test_the_server_answers_as_oned_does(oned: Oned) -> None:
    """The fake's own behaviour, where the tests lean on it."""
    proxy: Any = xmlrpc.client.ServerProxy(oned.endpoint)
    with proxy:
        assert proxy.one.system.version("ada:wrong")[0::2] == [False, 0x100]
        ok, text, _ = proxy.one.vmpool.info("ada:s3cr3t:with:colons", -3, -1, -1, -1)
        assert (ok, text) == (True, "<VM_POOL></VM_POOL>")
        with pytest.raises(xmlrpc.client.Fault, match="not defined"):
            proxy.one.nonsense("ada:s3cr3t:with:colons")
    assert sys.version_info >= (3, 11)


@pytest.mark.slow
def test_a_job_runs_on_a_machine_of_the_cloud_by_ssh(oned: Oned, sshd: Sshd, tmp_path: Path) -> None:
    """The machines of the pretended cloud are this one, behind a real SSH server."""
    provisioner = cloud(
        oned, tmp_path, ready="ssh", user="", port=sshd.port, identity=str(sshd.keys.client), interval=0.1
    )
    runner = SshRunner(settings=SshRunnerSettings(folder=str(tmp_path / "far")), data_folder=tmp_path / "data")
    deployer = deployer_over(tmp_path, runner=runner, provisioner=provisioner)
    command = ("sh", "-c", "echo there; echo kept > $TRADEWIND_OUTPUTS/kept")
    request = request_for(tmp_path, command, offer=replace(OFFER, nodes=1))
    deployer.launch(row(), request)
    [*_, last] = drive(deployer)
    assert last.state is RunState.DONE, last
    assert (request.folder / "stdout").read_text() == "there\n"
    assert (request.folder / "outputs" / "kept").read_text() == "kept\n"
    assert oned.alive() == []
    assert last.cost > 0
    deployer.settle("run-1")
    deployer.close()


@pytest.mark.slow
def test_nothing_leaks_when_controllers_are_killed_at_any_call(oned: Oned, tmp_path: Path) -> None:
    assert kill_everywhere(oned, tmp_path, 36) >= 30


def test_gpus_are_passed_through_or_refused(oned: Oned, tmp_path: Path) -> None:
    """No machine without the GPUs that its offer is paid for."""
    plain, two, four = OFFER, replace(OFFER, nodes=1, gpus=2), replace(OFFER, nodes=1, gpus=4)
    bare = cloud(oned, tmp_path)
    assert bare.refuses(plain) == ""
    assert "gpu" in bare.refuses(two)
    with pytest.raises(OfferRefusedError, match="PCI device"):
        bare.make("run-1", OWNER, LATER, two)
    device = cloud(oned, tmp_path, template="gpus", gpu="10DE:1eb8")
    assert device.refuses(four) == ""
    device.make("run-2", OWNER, LATER, four)
    [machine] = oned.alive()
    cards = ElementTree.fromstring(machine["extra"]).findall("PCI")
    assert [card.findtext("TYPE") for card in cards] == ["NIC", None, None, None, None]
    assert {(card.findtext("VENDOR"), card.findtext("DEVICE")) for card in cards[1:]} == {("10de", "1eb8")}
    device.destroy(Cluster("run-2", ClusterState.UNKNOWN))
    theirs = cloud(oned, tmp_path, template="gpus", gpu="template")
    with pytest.raises(OfferRefusedError, match="has 2 GPUs, and the offer 4"):
        theirs.make("run-3", OWNER, LATER, four)
    assert [vm for vm in oned.alive() if "run-3" in vm["name"]] == []
    theirs.make("run-4", OWNER, LATER, two)
    [machine] = [vm for vm in oned.alive() if "run-4" in vm["name"]]
    assert ElementTree.fromstring(machine["extra"]).find("PCI") is None, "the template brings them"


@pytest.mark.parametrize("gpu", ["nvidia", "10de", "10de:1eb8:0302:1", "10de:1eb"])
def test_a_gpu_is_a_pci_device(gpu: str) -> None:
    with pytest.raises(ValidationError):
        OpenNebulaSettings(template="node", gpu=gpu)
