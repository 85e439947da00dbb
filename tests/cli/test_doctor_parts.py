"""What each shipped part says that this machine lacks."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.deployer.runner.kubernetes import api
from tradewind.errors import InputError

NOTHING_THERE = {
    ("searcher", "optuna"): ("needs optuna", "pip install 'tradewind[optuna]'"),
    ("searcher", "paris"): ("needs sklearn", "tradewind[forest]"),
    ("provisioner", "libvirt"): (
        "no virsh program; there is no qemu-img program; there is none of geniso",
        "qemu-utils",
    ),
    ("provisioner", "opennebula"): ("no credentials for OpenNebula", "set auth"),
    ("provisioner", "terraform"): ("no terraform or tofu program; there is no ssh-keygen", "OpenTofu"),
    ("runner", "docker"): ("package docker is not installed; there is no container engine", "systemctl start docker"),
    ("runner", "htcondor"): ("no condor_submit on PATH", "HTCondor's tools"),
    ("runner", "kubernetes"): ("package kubernetes is not installed; no Kubernetes cred", "tradewind[kubernetes]"),
    ("runner", "ray"): ("has no Ray", "tradewind[ray]"),
    ("runner", "slurm"): ("no program sbatch", "slurm-client"),
    ("runner", "ssh"): ("no ssh program", "openssh-client"),
    ("callback", "mlflow"): ("need mlflow", "tradewind[mlflow]"),
    ("callback", "tensorboard"): ("need tensorboard", "tradewind[tensorboard]"),
    ("planner", "cp_sat"): ("ortools is not installed", "tradewind[optimal]"),
}
"""Of each part that needs a package, a program or a daemon: what it says without any, and how to get it."""

NOT_OF_THIS_MACHINE = {
    ("catalogue", "gcp"): "lists prices without its key",
}
"""Parts that raise `MissingProgramError` and yet need nothing."""

SHIPPED = {(kind, name): part for kind in plugins.KINDS for name, part in plugins.load_all(kind).items()}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with no program, package, socket or credentials of any backend."""
    for name in ("DOCKER_HOST", "KUBECONFIG", "ONE_AUTH", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setattr(shutil, "which", lambda *words, **named: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *words: None)


def test_what_is_missing_is_said_with_how_to_get_it() -> None:
    began = time.process_time()
    said = {key: part.missing() for key, part in SHIPPED.items()}
    assert time.process_time() - began < 0.5
    assert {key for key, words in said.items() if words} == set(NOTHING_THERE)
    for key, (words, hint) in NOTHING_THERE.items():
        what, _, how = said[key].partition(": ")
        assert words in what and hint in how, (key, said[key])
        assert "\n" not in said[key]


def test_nothing_is_missing_where_everything_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **named: f"/usr/bin/{name}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None, origin=f"{name}.py"))
    for name, variable in (("config", "KUBECONFIG"), ("one_auth", "ONE_AUTH")):
        (tmp_path / name).write_text("user:password")
        monkeypatch.setenv(variable, str(tmp_path / name))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
        engine.bind(f"{tmp_path}/docker.sock")
        engine.listen()
        assert {key: part.missing() for key, part in SHIPPED.items() if part.missing()} == {}


def test_a_pod_has_credentials_though_its_user_has_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", "~no-such-user/config")
    with pytest.raises(InputError, match="no home folder ~no-such-user"):
        api.find_credentials()
    monkeypatch.setattr(api, "_IN_POD", tmp_path)
    api.find_credentials()


def test_a_part_that_raises_for_what_is_not_installed_says_so_beforehand() -> None:
    """So that a new part that needs a package or program is not called usable where it is not there."""
    raising = set()
    for key, part in SHIPPED.items():
        file = Path(str(sys.modules[part.__module__].__file__))
        # A part with a package of its own is in a module that is called after its kind.
        own = file.parent.glob("*.py" if file.stem == key[0] else f"{file.stem}*.py")
        texts = [each.read_text(encoding="utf-8") for each in own]
        if any(call in text for text in texts for call in ("MissingProgramError(", "find_program(")):
            raising.add(key)
    assert len(raising) > 8
    assert {key for key in raising if not SHIPPED[key].needs} == set(NOT_OF_THIS_MACHINE)


def test_an_engine_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
        engine.bind(f"{tmp_path}/docker.sock")
        engine.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(f"{tmp_path}/docker.sock")
        began = time.monotonic()
        words = SHIPPED["runner", "docker"].missing()
        took = time.monotonic() - began
        for each in waiting:
            each.close()
    assert f"the container engine at {tmp_path}/docker.sock does not answer" in words
    assert took < 0.9  # without load 0.2 s, the limit of a use is 1 s


def test_engines_elsewhere_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://someone@192.0.2.1")
    words = SHIPPED["runner", "docker"].missing()
    assert "there is no ssh program" in words and "engine" not in words
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert "would be an open port" in SHIPPED["runner", "docker"].missing()


def test_a_folder_of_the_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "tradewind_nothing").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not plugins.installed("tradewind_nothing")
    assert not plugins.installed("tradewind_no_such_package")
    assert plugins.installed("numpy")
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert not plugins.installed("numpy")
