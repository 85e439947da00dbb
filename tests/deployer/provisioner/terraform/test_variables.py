"""What the shipped Terraform modules are given."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.provisioner.terraform.helpers import LATER

from tradewind.deployer.provisioner.terraform import azure as terraform_azure
from tradewind.deployer.provisioner.terraform import gcp as terraform_gcp
from tradewind.deployer.provisioner.terraform import provisioner as provisioner_module
from tradewind.deployer.provisioner.terraform import settings as terraform_offers
from tradewind.deployer.provisioner.terraform.cli import TerraformCli, TerraformResult, declared_variables
from tradewind.deployer.provisioner.terraform.provisioner import TerraformProvisioner
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.problem import Offer

D2 = Offer("azure", "Standard_D2s_v5", 2, 8, 0.1, region="eastus")
E2 = Offer("gcp", "e2-standard-2", 2, 8, 0.1, region="us-central1")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The variables of each machine that was made, by a Terraform that makes one at once."""
    seen: list[dict[str, Any]] = []

    def run(program: TerraformCli, folder: TerraformRunFolder, lock: int, verb: str, seconds: float) -> TerraformResult:
        seen.append(json.loads((folder.path / "tradewind.auto.tfvars.json").read_text()))
        return TerraformResult(0, outputs={"machines": [{"id": "m", "address": "192.0.2.1"}]})

    monkeypatch.setattr(TerraformCli, "prepare", lambda self, sources: Path())
    monkeypatch.setattr(TerraformCli, "settle", lambda self, folder, module: None)
    monkeypatch.setattr(TerraformCli, "run", run)
    for name in ("ARM_SUBSCRIPTION_ID", "GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CLOUDSDK_CORE_PROJECT", raising=False)
    return seen


def logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both providers' own programs know where they are."""

    def ask(provider: str, program: str, *words: str, **_: Any) -> Any:
        known: dict[str, Any] = {"show": {"id": "the-subscription"}, "get-value": "the-project"}
        return known.get(words[1], [{"zone": "us-central1-a"}] if words[1] == "machine-types" else [])

    for module in (terraform_azure, terraform_gcp):
        monkeypatch.setattr(module, "ask", ask)
        monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")


def made(tmp_path: Path, offer: Offer, **settings: Any) -> None:
    known: dict[str, Any] = {"providers": ("azure", "gcp"), "caller_cidr": "192.0.2.1/32", "ready": "none", **settings}
    TerraformProvisioner(settings=TerraformSettings(**known), data_folder=tmp_path).make("run-1", "me", LATER, offer)


@pytest.mark.parametrize(
    ("offer", "variable", "wanted"), [(D2, "subscription_id", "the-subscription"), (E2, "project", "the-project")]
)
def test_machines_are_made_where_leftovers_are_looked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[dict[str, Any]],
    offer: Offer,
    variable: str,
    wanted: str,
) -> None:
    """As with `az login` alone, where Terraform's plugin does not know the subscription."""
    logged_in(monkeypatch)
    made(tmp_path / "one", offer)
    assert given[-1][variable] == wanted
    made(tmp_path / "two", offer, variables={variable: "named"})
    assert given[-1][variable] == "named"
    made(tmp_path / "three", offer, sweep=False)
    own = tmp_path / "own"
    own.mkdir()
    (own / "main.tf").write_text("")
    made(tmp_path / "four", offer, module=own)
    assert [variable in each for each in given[2:]] == [False, False]


def test_leases_that_azure_does_not_end_by_itself_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The default is a lease of a week, and a machine that only turned itself off is paid for."""
    logged_in(monkeypatch)
    settings = TerraformSettings(providers=("azure", "gcp"), caller_cidr="192.0.2.1/32", ready="none")
    provisioner = TerraformProvisioner(settings=settings, data_folder=tmp_path)
    now = time.time()
    provisioner.make("run-1", "me", now + 22 * 3600, D2)
    provisioner.make("run-2", "me", now + 169 * 3600, E2)
    assert caplog.messages == []
    provisioner.make("run-3", "me", now + 169 * 3600, D2)
    provisioner.make("run-4", "me", now + 169 * 3600, D2)
    [words] = caplog.messages
    assert "a lease of 169 h" in words and "tradewind reap" in words and "deploy.longest: 21h" in words
    module = Path(terraform_azure.__file__).parent / "modules/azure/main.tf"
    assert f"var.lease_seconds < {terraform_offers._AZURES_CLOCK_SECONDS} ?" in module.read_text()


@pytest.mark.parametrize(
    ("file", "text", "declared"),
    [
        ("main.tf", 'variable "run_id" {}\n  variable nodes { default = 1 }\n', {"run_id", "nodes"}),
        ("main.tf", '# variable "a" {}\n/* variable "b" {} \nvariable "c" {} */\n// variable "d" {}\n', set()),
        ("vars.tf.json", '{"variable": {"run_id": {}, "image": {"default": ""}}}', {"run_id", "image"}),
        ("vars.tf.json", '{"variable": [{"run_id": {}}, {"image": {}}]}', {"run_id", "image"}),
        ("notes.txt", 'variable "run_id" {}', set()),
    ],
)
def test_the_variables_that_a_module_declares(tmp_path: Path, file: str, text: str, declared: set[str]) -> None:
    (tmp_path / file).write_text(text)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "main.tf").write_text('variable "inner" {}')
    assert declared_variables(tmp_path) == declared


def test_a_module_gets_what_it_declares_and_no_address_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[dict[str, Any]]
) -> None:
    def refuse(url: str) -> str:
        raise AssertionError(f"asked {url}")

    monkeypatch.setattr(provisioner_module, "address_of_this_machine", refuse)
    logged_in(monkeypatch)
    own = tmp_path / "own"
    own.mkdir()
    (own / "main.tf").write_text('variable "run_id" {}\nvariable "nodes" {}\n')
    made(tmp_path / "one", D2, module=own, caller_cidr="", variables={"mine": 1})
    assert given[-1] == {"run_id": "run-1", "nodes": 1, "mine": 1}
    (own / "main.tf").write_text('variable "caller_cidrs" {}\n')
    made(tmp_path / "three", D2, module=own, caller_cidr="192.0.2.1/32")
    assert given[-1] == {"caller_cidrs": ["192.0.2.1/32"]}


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp"])
def test_shipped_modules_declare_all_that_is_made_for_them(provider: str) -> None:
    declared = declared_variables(Path(terraform_azure.__file__).parent / "modules" / provider)
    assert {"run_id", "owner", "expires", "instance_type", "nodes", "zone", "image", "caller_cidrs"} <= declared
    assert {"login_key_public", "host_key_public", "host_key_private"} <= declared
