"""The libvirt provisioner without a libvirt: descriptions, seeds, files, and what the programs say."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.libvirt import boot as libvirt_seed
from tradewind.deployer.provisioner.libvirt import cluster_folders as libvirt_cluster
from tradewind.deployer.provisioner.libvirt.boot import BootProbe, BootProber, console_tail
from tradewind.deployer.provisioner.libvirt.cluster_folders import (
    ClusterFolders,
    ClusterPlan,
    machine_names,
    plan_machines,
    safe_name,
    typed_file_errors,
)
from tradewind.deployer.provisioner.libvirt.provisioner import LibvirtProvisioner
from tradewind.deployer.provisioner.libvirt.settings import LibvirtSettings
from tradewind.deployer.provisioner.libvirt.virsh import (
    LibvirtHost,
    NotThereError,
    PortTakenError,
    domain_tags,
    domain_xml,
    libvirt_error,
)
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    MissingProgramError,
    SpecError,
    TeardownError,
    UnreachableError,
)
from tradewind.problem import Offer

OFFER = Offer("libvirt", "m1", 1, 1, 0.1, nodes=2)


def settings(**given: Any) -> LibvirtSettings:
    return LibvirtSettings.model_validate({"image": "/images/debian.qcow2", **given})


def plan(nodes: int = 2, **given: Any) -> ClusterPlan:
    machines = plan_machines("run-1", nodes, internal="10.77.0.0/16", forwarded=given.pop("forwarded", True))
    facts: dict[str, Any] = {
        "vcpu": 2,
        "memory_mib": 512,
        "group": "239.1.2.3",
        "group_port": 12345,
        "price_per_hour": 0.25,
        **given,
    }
    return ClusterPlan("run-1", "me", 2e9, 1e9, **facts, machines=machines)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all programs there are; a test puts others in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def provisioner(folder: Path, **given: Any) -> LibvirtProvisioner:
    image = folder / "image.qcow2"
    image.touch()
    made = plugins.create("provisioner", "libvirt", {"image": str(image), **given}, data_folder=folder)
    assert isinstance(made, LibvirtProvisioner)
    return made


# ------------------------------------------------------------------ what the programs say


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("error: failed to get domain 'x'", NotThereError, ""),
        ("error: failed to get domain 'x'\nerror: Domain not found: no domain with name 'x'", NotThereError, ""),
        ("error: failed to get domain 'x'\nerror: End of file while reading data", UnreachableError, "libvirtd"),
        ("error: failed to get domain 'x'\nerror: access denied: 'domain' is not allowed", CredentialsError, "libvirt"),
        ("error: Requested operation is not valid: domain is not running", NotThereError, ""),
        ("error: failed to connect to the hypervisor\nerror: Failed to connect socket to '/run/libvirt/libvirt-sock': "
         "No such file or directory", UnreachableError, "systemctl start libvirtd"),
        ("error: Failed to connect socket to '/x': Connection refused", UnreachableError, "libvirtd"),
        ("error: Disconnected from qemu:///system due to end of file\nerror: End of file while reading data: "
         "Input/output error", UnreachableError, "libvirtd"),
        ("error: Failed to connect socket to '/libvirt-sock': Permission denied", CredentialsError, "group"),
        ("error: authentication unavailable: no polkit agent available to authenticate action",
         CredentialsError, "group libvirt"),
        ("error: Cannot access storage file '/images/x' (as uid:64055, gid:64055): No such file or directory",
         ImageError, "image"),
        ("error: Cannot access storage file '/home/me/x' (as uid:64055, gid:64055): Permission denied",
         CredentialsError, "storage"),
        ("error: internal error: qemu unexpectedly closed the monitor: qemu: could not load kernel '/vmlinuz': No such "
         "file or directory", ImageError, "kernel"),
        ("error: qemu closed the monitor: -drive file=/x: Image is not in qcow2 format", ImageError, "image"),
        ("error: cannot set up guest memory 'pc.ram': Cannot allocate memory", CapacityError, "memory"),
        ("error: unable to write '/x': No space left on device", CapacityError, "disk is full"),
        ("error: qemu: Could not set up host forwarding rule 'tcp:127.0.0.1:22-:22'", PortTakenError, "port"),
    ],
)  # fmt: skip
def test_what_libvirt_says_is_one_clear_error(words: str, error: type[DeployError], hint: str) -> None:
    said = libvirt_error(words, "qemu:///system")
    assert type(said) is error
    assert "qemu:///system" in str(said)
    assert hint in str(said)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("error: Network not found: no network with matching name 'x'", "net-list"),
        ("error: Requested operation is not valid: network 'default' is not active", "net-start"),
        ("error: invalid argument: could not find capabilities for domaintype=kvm", "emulator: qemu"),
        ("error: operation failed: Unable to find a satisfying virtiofsd", "virtiofsd"),
        ("error: unsupported configuration: Emulator does not support machine type 'x'", "set machine"),
    ],
)
def test_what_stays_wrong_is_not_tried_again(words: str, hint: str) -> None:
    said = libvirt_error(words, "qemu:///system")
    assert not said.retryable
    assert hint in str(said)
    assert libvirt_error("error: something else", "u").retryable


def test_missing_and_hanging_programs(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(programs / "virsh", "exec sleep 30")
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.2 s"):
        LibvirtHost("qemu:///system", 0.2).call("list")
    assert time.monotonic() - began < 10
    monkeypatch.setenv("PATH", str(programs))
    (programs / "virsh").unlink()
    with pytest.raises(MissingProgramError, match="apt-get install libvirt-clients"):
        LibvirtHost("u", 1).call("list")
    with pytest.raises(MissingProgramError, match="apt-get install qemu-utils"):
        libvirt_cluster.run_tool(["qemu-img"], "qemu-utils")
    with pytest.raises(MissingProgramError, match="genisoimage"):
        libvirt_seed.make_seed(settings(), plan(), plan().machines[0], tmp_path, 0, 0)


def test_when_libvirt_does_not_answer_nothing_is_known(tmp_path: Path, programs: Path) -> None:
    script(programs / "virsh", "echo 'error: failed to connect to the hypervisor' >&2; exit 1")
    made = provisioner(tmp_path)
    alive = Cluster("run-1", ClusterState.READY, setup_seconds=3.0)
    seen = made.poll([alive])["run-1"]
    assert (seen.state, seen.setup_seconds) == (ClusterState.UNKNOWN, 3.0)
    with pytest.raises(UnreachableError):
        made.destroy(alive)


def test_addresses_are_those_of_the_leases(programs: Path) -> None:
    script(programs / "virsh", "echo ' vnet0      52:54:00:aa:bb:cc    ipv4         192.168.122.17/24'")
    assert LibvirtHost("qemu:///system", 5).address("x") == "192.168.122.17"
    script(programs / "virsh", "true")
    assert LibvirtHost("qemu:///system", 5).address("x") == ""


# ------------------------------------------------------------------ before anything is made


def test_images_that_are_none(tmp_path: Path, programs: Path) -> None:
    made = provisioner(tmp_path)
    script(programs / "qemu-img", "echo 'qemu-img: Could not open: not in qcow2 format' >&2; exit 1")
    with pytest.raises(ImageError, match="is not a disk image"):
        made.make("run-1", "me", 4e9, OFFER)
    (tmp_path / "image.qcow2").unlink()
    with pytest.raises(ImageError, match="there is no image"):
        made.make("run-1", "me", 4e9, OFFER)
    with pytest.raises(ImageError, match="there is no image /no/vmlinuz"):
        provisioner(tmp_path, kernel="/no/vmlinuz").make("run-1", "me", 4e9, OFFER)


def test_offers_that_it_can_never_make(tmp_path: Path) -> None:
    made = provisioner(tmp_path)
    assert made.refuses(OFFER) == ""
    assert "aws" in made.refuses(replace(OFFER, provider="aws"))
    assert "arm64" in made.refuses(replace(OFFER, arch="arm64"))
    assert "accelerators" in made.refuses(replace(OFFER, gpus=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"uri": "qemu+ssh://host/system"},
        {"disk": "many"},
        {"internal": "10.77.0.1/16"},
        {"shared": "relative"},
        {"user": "Me; rm"},
        {"network": "a b"},
    ],
)
def test_settings_are_checked(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        provisioner(tmp_path, **wrong)


# ------------------------------------------------------------------ descriptions and seeds


def test_a_description_says_whose_the_machine_is(tmp_path: Path) -> None:
    made = plan()
    text = domain_xml(settings(), made, made.machines[1], tmp_path, kvm=True)
    tags = domain_tags(text)
    assert tags is not None
    assert (tags.run_id, tags.owner, tags.expires, tags.folder) == ("run-1", "me", 2e9, tmp_path)
    assert tags.facts == made.facts == {"created": made.created, "price_per_hour": 0.25}
    bare = domain_tags(re.sub(r' (created|price_per_hour)="[^"]*"', "", text))
    assert bare is not None and (bare.run_id, bare.facts) == ("run-1", {})
    assert domain_tags("<domain/>") is None
    assert domain_tags("<domain") is None
    document = ElementTree.fromstring(text)
    assert document.get("type") == "kvm"
    assert document.findtext("name") == "tradewind-run-1-1"
    assert document.findtext("memory") == "512"
    assert [each.get("network") for each in document.iterfind("devices/interface/source")] == ["default"]


@pytest.mark.parametrize("share", ["virtiofs", "9p", "none"])
def test_user_mode_has_a_port_and_a_network_of_the_machines_own(tmp_path: Path, share: str) -> None:
    made = plan()
    machine = replace(made.machines[0], port=2222)
    given = settings(network="user", share=share, kernel="/k", initrd="/i", arguments="console=ttyS0 <&>")
    text = domain_xml(given, made, machine, tmp_path, kvm=False)
    assert "hostfwd=tcp:127.0.0.1:2222-:22" in text
    document = ElementTree.fromstring(text)
    [card] = document.iterfind("devices/interface")
    source = card.find("source")
    assert source is not None
    assert (card.get("type"), source.attrib) == ("mcast", {"address": "239.1.2.3", "port": "12345"})
    assert document.findtext("os/cmdline") == "console=ttyS0 <&>"
    assert len(document.findall("devices/filesystem")) == (share != "none")


def seed(folder: Path, given: LibvirtSettings, made: ClusterPlan) -> dict[str, Any]:
    for name in ("login_key", "host_key"):
        (folder / name).write_text(f"SECRET {name}\n")
        (folder / f"{name}.pub").write_text(f"ssh-ed25519 {name} tradewind\n")
    (folder / "known_hosts").write_text("* ssh-ed25519 host_key\n")
    files = libvirt_seed._for_cloud_init(given, made, made.machines[0], folder, 1000)
    assert files["user-data"].startswith("#cloud-config\n")
    return {name: yaml.safe_load(text) for name, text in files.items()}


def test_cloud_init_is_told_all_that_a_machine_needs(tmp_path: Path) -> None:
    files = seed(tmp_path, settings(packages=["openmpi-bin"], docker=True), plan(forwarded=False))
    data = files["user-data"]
    [login] = data["users"]
    assert (login["name"], login["uid"], login["groups"]) == ("tradewind", "1000", ["docker"])
    assert login["ssh_authorized_keys"] == ["ssh-ed25519 login_key tradewind"]
    written = {each["path"]: each for each in data["write_files"]}
    assert written["/home/tradewind/.ssh/id_ed25519"]["permissions"] == "0600"
    assert data["mounts"] == [["tradewind", "/shared", "virtiofs", "nofail", "0", "0"]]
    assert data["packages"] == ["openmpi-bin"]
    assert data["runcmd"][-1] == ["touch", libvirt_seed.READY_FILE]
    assert list(files["network-config"]["ethernets"]) == ["outside"]
    assert files["meta-data"]["local-hostname"] == "node0"


def test_the_clock_of_the_lease_runs_before_anything_can_hang(tmp_path: Path) -> None:
    """Packages come after the first commands of a boot, and the last commands only after the packages."""
    made = replace(plan(), expires=2e9, created=2e9 - 7200)
    data = seed(tmp_path, settings(packages=["openmpi-bin"]), made)["user-data"]
    [[program, option, script, *arguments]] = data["bootcmd"]
    units, said = tmp_path / "units", tmp_path / "said"
    (tmp_path / "bin").mkdir()
    units.mkdir()
    (tmp_path / "bin/systemctl").write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    (tmp_path / "bin/systemctl").chmod(0o755)
    words = [program, option, script.replace("/etc/systemd/system", str(units)), *arguments]
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(words, env=environment, check=True, timeout=10)
    lines = (units / "tradewind-expiry.timer").read_text().splitlines()
    assert {"OnCalendar=2033-05-18 03:33:20 UTC", "OnBootSec=7200"} <= set(lines), "the time of day may be wrong"
    assert "ExecStart=/usr/bin/systemctl poweroff" in (units / "tradewind-expiry.service").read_text().splitlines()
    assert said.read_text().splitlines()[-1] == "--no-block start tradewind-expiry.timer"
    assert "expiry" not in str(data["runcmd"])


def test_in_user_mode_the_machines_know_their_addresses(tmp_path: Path) -> None:
    given = settings(network="user", user="root", share="none")
    files = seed(tmp_path, given, plan())
    inside = files["network-config"]["ethernets"]["inside"]
    assert inside["addresses"] == ["10.77.0.1/16"]
    written = {each["path"]: each["content"] for each in files["user-data"]["write_files"]}
    assert written["/etc/hosts"] == "\n10.77.0.1 node0\n10.77.0.2 node1\n"
    assert "oob_tcp_if_include = 10.77.0.0/16" in written["/root/.openmpi/mca-params.conf"]
    assert "mounts" not in files["user-data"]
    plain = libvirt_seed._plain(given, plan(), plan().machines[1], tmp_path)
    assert plain["hostname"] == "node1\n"
    assert plain["interfaces"].split()[1::2] == ["10.77.0.2/16", "10.0.2.15/24"]
    assert plain["share"] == ""


# ------------------------------------------------------------------ files


def test_names_of_runs_do_not_meet() -> None:
    assert safe_name("study-00001-1") == "study-00001-1"
    assert safe_name("a/b") != safe_name("a-b") != safe_name("a b")
    assert len(safe_name("x" * 300)) < 100
    names = dict.fromkeys(["tradewind-r-1-0", "tradewind-r-1-1", "tradewind-r-0", "tradewind-r-1-1-0", "other"])
    assert machine_names("r-1", names) == ["tradewind-r-1-0", "tradewind-r-1-1"]


def test_threads_note_the_same_machines_as_ready(tmp_path: Path) -> None:
    shelf = ClusterFolders(tmp_path)
    folders = [tmp_path / f"run-{turn}" for turn in range(60)]
    together = Barrier(4)

    def note(thread: int) -> list[tuple[float, list[str]]]:
        found = []
        for folder in folders:
            folder.mkdir(exist_ok=True)
            together.wait(10)
            found.append(shelf.note_ready(folder, float(thread), [f"m{thread}"]))
        return found

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(note, range(4)))
    assert all(answer == answers[0] for answer in answers)


def test_a_folder_keeps_its_plan_until_all_else_is_gone(tmp_path: Path) -> None:
    shelf = ClusterFolders(tmp_path)
    (tmp_path / ".new-1").mkdir()
    with shelf.locked() as lock:
        made = shelf.begin(plan(), lock)
    assert len({machine.port for machine in made.machines}) == 2
    folder = shelf.of("run-1")
    assert shelf.plans() == {folder: made}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["locks", "run-1"]
    assert shelf.note_ready(folder, 5.0, ["a", "b"]) == (5.0, ["a", "b"])
    assert shelf.note_ready(folder, 9.0, ["c", "d"]) == (5.0, ["a", "b"]), "what was written first holds"
    shelf.remove(folder)
    shelf.remove(folder)
    assert shelf.plans() == {}


def test_a_folder_that_cannot_be_read_is_no_reason_to_forget_it(tmp_path: Path, programs: Path) -> None:
    script(programs / "virsh", "true")
    made = provisioner(tmp_path)
    folder = tmp_path / "libvirt/run-1"
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text("{")
    seen = made.poll([Cluster("run-1", ClusterState.READY)])["run-1"]
    assert seen.state is ClusterState.UNKNOWN
    with pytest.raises(DeployError, match="remove the folder"):
        made.find(None)


def test_a_lock_that_is_kept_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt_cluster, "_LOCK_SECONDS", 0.1)
    shelf = ClusterFolders(tmp_path)
    with (
        shelf.locked("run-1"),
        pytest.raises(UnreachableError, match="locked for too long"),
        ClusterFolders(tmp_path).locked("run-1"),
    ):
        raise AssertionError


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, CapacityError), (errno.EACCES, CredentialsError), (errno.EIO, DeployError)],
)
def test_what_the_file_system_refuses(tmp_path: Path, number: int, error: type[DeployError]) -> None:
    with pytest.raises(error) as caught, typed_file_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is error
    assert os.strerror(number) in str(caught.value)


def test_a_refused_teardown_says_so(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(programs / "virsh", "true")
    made = provisioner(tmp_path)
    (tmp_path / "libvirt/run-1").mkdir(parents=True)

    def refuse(folder: Path) -> None:
        with typed_file_errors(folder):
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(ClusterFolders, "remove", lambda self, folder: refuse(folder))
    with pytest.raises(TeardownError, match="run-1"):
        made.destroy(Cluster("run-1", ClusterState.UNKNOWN))


# ------------------------------------------------------------------ looks


def test_last_words_are_one_line(tmp_path: Path) -> None:
    console = tmp_path / "console"
    assert console_tail(console) == ""
    console.write_bytes(b"one\r\n\n\x1b[0mtwo \xff\r\n" + b"x\n" * 3)
    assert console_tail(console) == "one | [0mtwo \ufffd | x | x | x"


def test_a_machine_is_looked_at_until_it_answers() -> None:
    prober = BootProber()
    looks: list[BootProbe | None] = [BootProbe("h", "", speaks=True), None, BootProbe(missing="silent")]

    def work(last: BootProbe) -> BootProbe:
        look = looks.pop()
        if look is None:
            raise UnreachableError("no route")
        return look

    def seen(wanted: str) -> None:
        def text() -> str:
            look = prober.look("m", work)
            return look.missing + look.address

        eventually(lambda: wanted in text(), pause=0.001)

    assert prober.look("m", work).missing == "it was just started"
    seen("h")
    assert looks == []
    prober.forget("m")
