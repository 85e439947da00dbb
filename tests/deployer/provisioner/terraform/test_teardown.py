"""Machines are given back with Terraform where the provider's own program is not logged in; nothing is forgotten."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.provisioner.terraform.helpers import OFFER, Sky, ready_run, under_sky

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.terraform import cloud as terraform_cloud
from tradewind.deployer.provisioner.terraform import gcp as terraform_gcp
from tradewind.deployer.provisioner.terraform.azure import AzureCloud
from tradewind.deployer.provisioner.terraform.cli import TerraformCli, TerraformResult
from tradewind.deployer.provisioner.terraform.cloud import ask
from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic
from tradewind.deployer.provisioner.terraform.gcp import GoogleCloud
from tradewind.deployer.provisioner.terraform.provisioner import ProviderClouds
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.errors import CredentialsError, DeployError, MissingProgramError, TeardownError, UnreachableError

RUN = Cluster("run-1", ClusterState.UNKNOWN)
NO_LOGIN = (
    "ERROR: (gcloud.compute.instances.list) You do not currently have an active account selected.\n"
    "Please run:\n\n  $ gcloud auth login\n\nto obtain new credentials."
)


@pytest.fixture
def sky(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sky]:
    made = Sky("m")
    monkeypatch.setattr(ProviderClouds, "_make", lambda self, provider, account: made)
    yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Terraform was asked for; it does it."""
    verbs: list[str] = []

    def run(self: TerraformCli, folder: TerraformRunFolder, lock: int, verb: str, seconds: float) -> TerraformResult:
        verbs.append(verb)
        folder.state.write_text(json.dumps({"resources": []}))
        return TerraformResult(0)

    monkeypatch.setattr(TerraformCli, "run", run)
    monkeypatch.setattr(TerraformCli, "__init__", lambda self, *_: None)
    return verbs


def with_state(folder: Path, **changes: Any) -> TerraformRunFolder:
    """A run whose machine Terraform knows."""
    ready_run(folder, **changes)
    run = TerraformRunFolder(folder / "terraform" / "runs", "run-1")
    machine = {"mode": "managed", "type": "aws_instance", "instances": [{}]}
    run.state.write_text(json.dumps({"resources": [machine]}))
    return run


@pytest.mark.parametrize(
    "problem", [CredentialsError("not logged in", hint="log in"), MissingProgramError("no gcloud", hint="log in")]
)
def test_terraform_destroys_what_the_provider_cannot_be_asked_about(
    tmp_path: Path, sky: Sky, asked: list[str], problem: Exception
) -> None:
    folder = with_state(tmp_path)
    provisioner = under_sky(tmp_path)
    sky.refusal = problem
    with pytest.raises(TeardownError, match="what is left of run run-1 cannot be looked for at aws") as caught:
        provisioner.destroy(RUN)
    assert caught.value.hint == "log in"
    assert asked == ["destroy"], "it has the state, and credentials of its own"
    # It is not forgotten, and not paid for.
    assert folder.read() is not None
    seen = provisioner.poll([RUN])["run-1"]
    assert (seen.state, seen.vanished) == (ClusterState.FAILED, True)
    with pytest.raises(TeardownError, match="cannot be looked for"):
        provisioner.destroy(RUN)
    assert asked == ["destroy"], "nothing is left in the state"
    # Machines that are gone are not taken for new ones.
    with pytest.raises(TeardownError):
        provisioner.make("run-1", "me", 4e9, OFFER)
    sky.refusal = None
    assert provisioner.destroy(RUN).state is ClusterState.GONE
    assert folder.read() is None


def test_a_destroy_that_fails_is_what_is_said(
    tmp_path: Path, sky: Sky, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_state(tmp_path)
    monkeypatch.setattr(TerraformCli, "run", lambda *_: TerraformResult(1, (TerraformDiagnostic("still in use"),)))
    sky.refusal = UnreachableError("no network")
    with pytest.raises(TeardownError, match="terraform did not destroy the machines of run run-1: still in use"):
        under_sky(tmp_path).destroy(RUN)
    assert not under_sky(tmp_path).poll([RUN])["run-1"].vanished


def test_with_the_credentials_of_another_account_terraform_is_not_asked(
    tmp_path: Path, sky: Sky, asked: list[str]
) -> None:
    """It would not find the machines there, and forget them."""
    with_state(tmp_path)
    sky.refusal = TeardownError("the machines are in the AWS account 1")
    with pytest.raises(TeardownError, match="the AWS account 1"):
        under_sky(tmp_path).destroy(RUN)
    assert asked == []


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    path = folder / name
    lines = (f"#!{sys.executable} -IS", "import sys", "open(sys.argv[0] + '.asked', 'a').write('x')", says)
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("name", "words", "login"),
    [("gcloud", NO_LOGIN, "gcloud auth login"), ("az", "ERROR: Please run 'az login' to setup account.", "az login")],
)
def test_who_is_not_logged_in_hears_it_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str, login: str
) -> None:
    program(tmp_path, monkeypatch, name, f"sys.exit({words!r})")
    cloud = GoogleCloud("p") if name == "gcloud" else AzureCloud("s")
    with pytest.raises(CredentialsError, match=f"does not answer `{name} ") as caught:
        cloud.check()
    assert caught.value.hint is not None
    assert login in caught.value.hint
    assert not caught.value.retryable
    program(tmp_path, monkeypatch, name, "print('[]')")
    cloud.check()
    cloud.check()
    assert len((tmp_path / f"{name}.asked").read_text()) == 2, "a program that has answered is not asked again"


def test_nothing_is_begun_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "gcloud", f"sys.exit({NO_LOGIN!r})")
    provisioner = under_sky(tmp_path, providers=("gcp",))
    offer = replace(OFFER, provider="gcp", instance_type="n2-standard-2", region="us-central1")
    with pytest.raises(CredentialsError, match="active account"):
        provisioner.make("run-1", "me", 4e9, offer)
    assert list((tmp_path / "terraform" / "runs").glob("[!.]*")) == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "ERROR: (gcloud.auth) Your current active account [a@b] does not have any valid credentials",
            CredentialsError,
        ),
        ("ERROR: Reauthentication failed. cannot prompt during non-interactive execution.", CredentialsError),
        ("dial tcp: i/o timeout", UnreachableError),
        ("rateLimitExceeded", DeployError),
        ("Some requests did not succeed: no idea", DeployError),
    ],
)
def test_what_a_providers_program_complains_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, kind: type[DeployError]
) -> None:
    program(tmp_path, monkeypatch, "gcloud", f"sys.exit({words!r})")
    with pytest.raises(DeployError) as caught:
        GoogleCloud("p").find(None)
    assert type(caught.value) is kind
    assert "make" not in caught.value.message, "nothing was to be made"


def test_what_goes_on_at_the_provider_may_take_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "gcloud", "import time; time.sleep(60)")
    assert ask("gcp", "gcloud", "compute", "instances", "delete", "a", patience=0.1) is None
    monkeypatch.setattr(terraform_cloud, "_ASK_SECONDS", 0.1)
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.1 s"):
        ask("gcp", "gcloud", "compute", "instances", "list")


class Google:
    """What `gcloud` says."""

    def __init__(self) -> None:
        labels = {"tradewind-run": "run-1", "tradewind-owner": "me"}
        zones = "https://www.googleapis.com/compute/v1/projects/p/zones"
        machines: list[dict[str, Any]] = [
            {"name": name, "zone": f"{zones}/r-{name[0]}", "labels": labels} for name in ("b0", "b1", "c0")
        ]
        rules = [{"name": f"tradewind-{each}", "description": json.dumps(labels)} for each in ("closed", "ssh")]
        self.has: dict[str, list[dict[str, Any]]] = {
            "instances": machines,
            "disks": machines[:1],
            "firewall-rules": rules,
        }
        self.answer: Exception | None = None
        self.deletes = True
        self.deleted: list[str] = []

    def ask(
        self, _provider: str, _program: str, _compute: str, kind: str, verb: str, *words: str, **patience: float
    ) -> Any:
        if verb == "list":
            return self.has[kind]
        assert patience == {"patience": 7.0}
        self.deleted.append(f"{kind} {' '.join(words[: words.index('--quiet')])}")
        if self.answer is not None:
            raise self.answer
        if self.deletes:
            self.has[kind] = [each for each in self.has[kind] if each["name"] not in words]
        return None


def test_machines_at_google_go_together_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    sky, google = Google(), GoogleCloud("p", patience=7.0)
    monkeypatch.setattr(terraform_gcp, "ask", sky.ask)
    sky.deletes = False
    machines = ["instances b0 b1 --zone r-b", "instances c0 --zone r-c"]
    for answer in (None, DeployError("The resource 'b0' is not ready"), DeployError("c0 was not found")):
        sky.answer = answer
        assert google.give_back("run-1", "r") == ["instance b0", "instance b1", "instance c0"], "on their way"
        assert sky.deleted == machines, "what they use is not asked to go before them"
        sky.deleted.clear()
    sky.answer, sky.deletes = None, True
    assert google.give_back("run-1", "r") == []
    assert sky.deleted == [*machines, "disks b0 --zone r-b", "firewall-rules tradewind-closed tradewind-ssh"]


def test_what_google_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    sky, google = Google(), GoogleCloud("p", patience=7.0)
    monkeypatch.setattr(terraform_gcp, "ask", sky.ask)
    sky.answer = CredentialsError("Required 'compute.instances.delete' permission")
    with pytest.raises(CredentialsError):
        google.give_back("run-1", "r")


def test_a_deletion_is_waited_for_as_the_settings_say() -> None:
    made = [ProviderClouds(TerraformSettings(destroy_seconds=seconds))._make("gcp", "p") for seconds in (600.0, 1.0)]
    assert [each._patience for each in made if isinstance(each, GoogleCloud)] == [300.0, 60.0]
