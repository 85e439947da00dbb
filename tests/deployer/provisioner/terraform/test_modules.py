"""What the shipped Terraform modules decide, told by Terraform itself where it can; no provider is asked."""

from __future__ import annotations

import configparser
import getpass
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engines import moto as engine

from tradewind.deployer.provisioner import terraform
from tradewind.deployer.provisioner.terraform import settings

pytestmark = pytest.mark.xdist_group("terraform")

MODULES = Path(terraform.__file__).parent / "modules"


def block(module: str, head: str) -> str:
    """A block of a module's main.tf, from its head to the brace that ends it."""
    found = re.search(rf"^{re.escape(head)} {{\n(.*?)^}}", (MODULES / module / "main.tf").read_text(), re.M | re.S)
    assert found is not None, head
    return found[1]


def decided(folder: Path, module: str, local: str, given: Mapping[str, Any]) -> str:
    """A local value of a module of one line, with variables filled in."""
    return str(evaluated(folder, filled(module, local, given)))


def filled(module: str, local: str, given: Mapping[str, Any]) -> str:
    """The expression of a local value, with variables and other local values filled in."""
    found = re.search(rf"^  {local} += (.+)$", block(module, "locals"), re.M)
    assert found is not None, local
    expression = re.sub(r"\bvar\.(\w+)", lambda name: json.dumps(given[name[1]]), found[1])
    return re.sub(r"\blocal\.(\w+)", lambda name: f"({filled(module, name[1], given)})", expression)


def evaluated(folder: Path, expression: str) -> Any:
    """What Terraform makes of an expression."""
    words = [engine.program_or_skip(), "console"]
    text = f"jsonencode({expression})"
    done = subprocess.run(words, cwd=folder, input=text, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(json.loads(done.stdout))


def cloud_init(folder: Path, **given: Any) -> dict[str, Any]:
    """What a machine is told to do when it boots."""
    facts = {
        "expires": 4e9,
        "lease_seconds": 3600,
        "install_docker": False,
        "login_key_public": "ssh-ed25519 A",
        **given,
    }
    facts |= {"host_key_public": "ssh-ed25519 B", "host_key_private": "-----BEGIN\nx\n-----END\n"}
    shutil.copy(MODULES / "cloud-init.yaml.tftpl", folder)
    (folder / "given.json").write_text(json.dumps(facts))
    text = evaluated(folder, 'templatefile("cloud-init.yaml.tftpl", jsondecode(file("given.json")))')
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def booted(folder: Path, document: dict[str, Any], product: str = "") -> tuple[Path, dict[str, str]]:
    """A root folder after the first commands of a boot, and the environment that they ran in."""
    root = folder / "root"
    for name in ("etc/systemd/system", "etc/default", "bin", "sys/class/dmi/id"):
        (root / name).mkdir(parents=True, exist_ok=True)
    if product:
        (root / "sys/class/dmi/id/product_name").write_text(product)
    (root / "bin/systemctl").write_text(f'#!/bin/sh\necho "$@" >> {root}/said\n')
    (root / "bin/systemctl").chmod(0o755)
    environment = {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    for *_, script in document["bootcmd"]:
        words = ["sh", "-e", "-c", script.replace("/etc/", f"{root}/etc/").replace("/sys/", f"{root}/sys/")]
        subprocess.run(words, env=environment, check=True, timeout=10)
    return root, environment


@pytest.mark.parametrize(
    ("kind", "spot", "wanted"),
    [
        ("e2-standard-4", False, "MIGRATE"),  # Google refuses TERMINATE
        ("e2-standard-4", True, "TERMINATE"),  # and here MIGRATE
        ("n2-standard-4", False, "TERMINATE"),
        ("g2-standard-4", False, "TERMINATE"),  # a machine with GPUs cannot move
        ("c3-highcpu-192-metal", False, "TERMINATE"),
    ],
)
def test_when_google_maintains_a_host(tmp_path: Path, kind: str, spot: bool, wanted: str) -> None:
    assert decided(tmp_path, "gcp", "maintenance", {"instance_type": kind, "spot": spot}) == wanted
    machine = block("gcp", 'resource "google_compute_instance" "node"')
    assert re.search(r"^    on_host_maintenance += local\.maintenance$", machine, re.M)


@pytest.mark.parametrize(
    ("kind", "wanted"), [("t2.micro", True), ("t3a.large", True), ("t4g.nano", True), ("trn1.2xlarge", False)]
)
def test_which_machines_of_amazon_borrow_cpu(tmp_path: Path, kind: str, wanted: bool) -> None:
    assert decided(tmp_path, "aws", "burstable", {"instance_type": kind}) == str(wanted)
    assert bool(settings._BURSTABLE.match(kind)) is wanted


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("n2-standard-4", "", "pd-balanced"),
        ("c3-standard-4", "", "pd-balanced"),
        ("a3-highgpu-8g", "", "pd-balanced"),
        ("n4-custom-4-16384", "", "hyperdisk-balanced"),
        ("c4a-standard-1", "", "hyperdisk-balanced"),
        ("c4d-highcpu-8-lssd", "", "hyperdisk-balanced"),
        ("a4x-highgpu-4g", "", "hyperdisk-balanced"),
        ("a3-ultragpu-8g", "", "hyperdisk-balanced"),
        ("c3-highcpu-192-metal", "", "hyperdisk-balanced"),
        ("c4-standard-2", "hyperdisk-throughput", "hyperdisk-throughput"),
    ],
)
def test_disks_that_machines_of_google_take(tmp_path: Path, kind: str, given: str, wanted: str) -> None:
    assert decided(tmp_path, "gcp", "disk_type", {"instance_type": kind, "disk_type": given}) == wanted
    assert re.search(
        r"^      type   = local\.disk_type$", block("gcp", 'resource "google_compute_instance" "node"'), re.M
    )


@pytest.mark.parametrize(
    ("kind", "arch", "wanted"),
    [
        ("Standard_D2s_v5", "x86_64", "12-gen2"),
        ("Standard_D2_v4", "x86_64", "12-gen2"),
        ("Standard_D2ps_v5", "arm64", "12-arm64"),
        ("Standard_B1s", "x86_64", "12-gen2"),
        ("Standard_DS1_v2", "x86_64", "12-gen2"),
        ("Standard_E16-4s_v5", "x86_64", "12-gen2"),
        ("Standard_HB120rs_v3", "x86_64", "12-gen2"),
        ("Standard_NC6s_v3", "x86_64", "12-gen2"),
        ("Standard_A1_v2", "x86_64", "12"),
        ("Standard_A2m_v2", "x86_64", "12"),
        ("Standard_D1_v2", "x86_64", "12"),
        ("Standard_D2_v3", "x86_64", "12"),
        ("Standard_E64i_v3", "x86_64", "12"),
        ("Standard_F16", "x86_64", "12"),
    ],
)
def test_which_image_a_size_of_azure_can_start(tmp_path: Path, kind: str, arch: str, wanted: str) -> None:
    """Some sizes are refused with images of the second generation, newer ones with those of the first."""
    given = {"instance_type": kind, "arch": arch, "image": "", "image_name": "Debian:debian-12:12-ARCH:latest"}
    assert decided(tmp_path, "azure", "image", given) == f"Debian:debian-12:{wanted}:latest"


def test_googles_rules_are_of_the_network_of_the_subnetwork() -> None:
    """Rules of another one let nobody in, and the machine would be paid for until it is given up."""
    for rule in ("closed", "ssh", "among"):
        assert "= local.network\n" in block("gcp", f'resource "google_compute_firewall" "{rule}"')
    assert "data.google_compute_subnetwork.given[0].network" in block("gcp", "locals")


def test_only_machines_of_azure_are_of_a_zone() -> None:
    """What else is made stays as it is when the next zone is tried: an address in use cannot be replaced."""
    text = (MODULES / "azure/main.tf").read_text()
    heads = re.findall(r'^resource "\w+" "\w+"', text, re.M)
    assert [head for head in heads if "var.zone" in block("azure", head)] == [
        'resource "azurerm_linux_virtual_machine" "node"'
    ]


@pytest.mark.parametrize(
    ("seconds", "up", "ends"),
    [(-5, 60, True), (3600, 60, False), (3600, 86399, False), (3600, 86400, True), (1e9, 86401, True)],
)
def test_the_clock_of_the_lease(tmp_path: Path, seconds: float, up: float, ends: bool) -> None:
    """By the time of day, and by the time since the boot, which is right where the time of day is far behind.

    Older versions of systemd skip lines of a unit that they do not know: all is in the one that they do.
    """
    document = cloud_init(tmp_path, expires=int(time.time() + seconds), lease_seconds=86400)
    root, environment = booted(tmp_path, document)
    (root / "said").unlink()
    (tmp_path / "uptime").write_text(f"{up}.37 123.45\n")
    unit = (root / "etc/systemd/system/tradewind-lease.service").read_text()
    lines = unit[unit.index("[Service]\n") :].splitlines()[1:]
    assert [line.partition("=")[0] for line in lines] == ["Type", "ExecStart"]
    # As systemd reads it: two signs stand for one.
    line = lines[1].removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$")
    words = shlex.split(line.replace("/proc/uptime", str(tmp_path / "uptime")))
    assert words[:2] == ["/bin/sh", "-c"]
    subprocess.run(words, env=environment, check=True, timeout=10)
    assert (root / "said").exists() is ends
    if ends:
        assert (root / "said").read_text() == "--no-block poweroff\n"


@pytest.mark.parametrize(("lease", "wanted"), [(1, 60), (604800, 604800), (200 * 86400, 10368000)])
def test_google_ends_a_machine_within_what_it_takes(tmp_path: Path, lease: int, wanted: int) -> None:
    """It refuses `max_run_duration` below 30 seconds and above 120 days."""
    found = re.search(r"^      seconds = (.+)$", block("gcp", 'resource "google_compute_instance" "node"'), re.M)
    assert found is not None
    assert evaluated(tmp_path, found[1].replace("var.lease_seconds", str(lease))) == wanted


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("10.77.0.4", True),
        ("172.16.0.1", True),
        ("172.31.255.9", True),
        ("192.168.3.4", True),
        ("100.127.0.1", True),
        ("172.32.0.1", False),
        ("100.63.0.1", False),
        ("140.82.121.4", False),
        ("github.com", False),
    ],
)
def test_the_runs_own_key_is_for_its_own_machines(tmp_path: Path, host: str, ours: bool) -> None:
    """What a job fetches by SSH from elsewhere has a host key of its own, and wants the job's own key."""
    [config] = [each["content"] for each in cloud_init(tmp_path)["write_files"] if each["path"].endswith(".conf")]
    assert config.startswith("Match localuser tradewind host ")
    (tmp_path / "config").write_text(config.replace("localuser tradewind", f"localuser {getpass.getuser()}"))
    words = ["ssh", "-G", "-F", str(tmp_path / "config"), host]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    assert ("identityfile /home/tradewind/.ssh/cluster" in said) is ours
    assert ("globalknownhostsfile /etc/ssh/tradewind_known_hosts" in said) is ours
    assert ("stricthostkeychecking true" in said) is ours


def test_googles_agent_leaves_the_host_key_alone(tmp_path: Path) -> None:
    """The caller knows the key beforehand, and would not trust another; commands of a boot run at each."""
    document = cloud_init(tmp_path)
    for product, wanted in (("", None), ("HVM domU\n", None), ("Google Compute Engine\n", "false")):
        root, _ = booted(tmp_path, document, product)
        asked = configparser.ConfigParser()
        asked.read(root / "etc/default/instance_configs.cfg")
        assert asked.get("InstanceSetup", "set_host_keys", fallback=None) == wanted
    text = (root / "etc/default/instance_configs.cfg").read_text()
    booted(tmp_path, document, product)
    assert (root / "etc/default/instance_configs.cfg").read_text() == text


def installed(folder: Path, script: str, **programs: str) -> tuple[list[str], bool]:
    """What the last command of a boot asked of some programs, and whether the machine is ready then."""
    (folder / "bin").mkdir()
    for name in ("cat", "chmod", "touch"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    told = dict.fromkeys(("systemctl", "usermod", "sleep"), "exit 0") | programs
    for name, body in told.items():
        (folder / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/said\n{body}\n')
        (folder / "bin" / name).chmod(0o755)
    words = ["/bin/sh", "-c", script.replace("/var/lib/", f"{folder}/")]
    subprocess.run(words, env={"PATH": str(folder / "bin")}, timeout=20, capture_output=True)
    return (folder / "said").read_text().splitlines(), (folder / "tradewind-ready").exists()


def test_the_container_engine_gets_what_it_needs_to_start_containers(tmp_path: Path) -> None:
    """Without its parser of AppArmor, `docker info` is content, and every container is refused."""
    *_, script = cloud_init(tmp_path, install_docker=True)["runcmd"][-1]
    docker = tmp_path / "bin/docker"
    apt = f'[ "$1" = update ] && exit 0; echo "#!/bin/sh" > {docker}; chmod +x {docker}'
    said, ready = installed(tmp_path, script, **{"apt-get": apt})
    [install] = [line for line in said if line.startswith("apt-get install")]
    assert install.split()[-2:] == ["docker.io", "apparmor"]
    assert ready


def test_a_mirror_that_fails_at_first_costs_no_machine(tmp_path: Path) -> None:
    *_, script = cloud_init(tmp_path, install_docker=True)["runcmd"][-1]
    docker, tries = tmp_path / "bin/docker", tmp_path / "tries"
    apt = f'echo x >> {tries}; [ "$(cat {tries} | {shutil.which("wc")} -l)" -gt 2 ] || exit 100; '
    said, ready = installed(tmp_path, script, **{"apt-get": f'{apt}echo "#!/bin/sh" > {docker}; chmod +x {docker}'})
    assert said.count("sleep 10") == 2 and ready


def test_an_image_with_an_engine_keeps_it_and_a_broken_one_is_never_ready(tmp_path: Path) -> None:
    *_, script = cloud_init(tmp_path, install_docker=True)["runcmd"][-1]
    for name, code in (("has", 0), ("broken", 1)):
        (tmp_path / name).mkdir()
        said, ready = installed(tmp_path / name, script, **{"docker": f"exit {code}", "apt-get": "exit 0"})
        assert not [line for line in said if line.startswith("apt-get")]
        assert ready is (code == 0)
        assert (tmp_path / name / "tradewind-failed").exists() is (code != 0)


def test_no_updates_while_a_job_runs(tmp_path: Path) -> None:
    root, _ = booted(tmp_path, cloud_init(tmp_path))
    assert "mask apt-daily.timer apt-daily-upgrade.timer" in (root / "said").read_text().splitlines()
