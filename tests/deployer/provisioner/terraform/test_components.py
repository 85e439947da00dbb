"""The parts of the terraform provisioner that need no provider."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.deployer.helpers import deployer_over, request_for, row
from tests.deployer.provisioner.terraform.helpers import LATER, OFFER
from tests.engines import moto as engine
from tests.engines.ssh import Sshd, sshd  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.deployer import aws_credentials
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.terraform import aws as terraform_aws
from tradewind.deployer.provisioner.terraform import machine_health as terraform_ready
from tradewind.deployer.provisioner.terraform.aws import AmazonCloud, Ec2Client
from tradewind.deployer.provisioner.terraform.azure import AzureCloud
from tradewind.deployer.provisioner.terraform.cli import TerraformCli, TerraformResult, read_log
from tradewind.deployer.provisioner.terraform.cloud import ask
from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic, init_error, terraform_error
from tradewind.deployer.provisioner.terraform.gcp import GoogleCloud
from tradewind.deployer.provisioner.terraform.machine_health import address_of_this_machine
from tradewind.deployer.provisioner.terraform.provisioner import TerraformProvisioner
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder, TerraformRunRecord
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    TeardownError,
    UnreachableError,
)
from tradewind.problem import Offer, RunState
from tradewind.testing.provisioners import settled

pytestmark = pytest.mark.xdist_group("terraform")

MODULES = Path(aws_credentials.__file__).parent / "provisioner" / "terraform" / "modules"
NATIVE = """
variable "nodes" { type = number }
variable "port" { default = 22 }
variable "seconds" { default = 0 }
variable "run_id" { type = string }

resource "terraform_data" "machine" {
  count = var.nodes
  input = "${var.run_id}-${count.index}"

  provisioner "local-exec" {
    command = "sleep ${var.seconds}"
  }
}

output "machines" {
  value = [for m in terraform_data.machine : { id = m.output, address = "127.0.0.1", port = var.port }]
}
"""


@pytest.fixture
def terraform(monkeypatch: pytest.MonkeyPatch) -> str:
    """A program; the tests of modules without providers need no more."""
    found = engine.program_or_skip()
    monkeypatch.setenv("PATH", f"{Path(found).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("TF_CLI_CONFIG_FILE", raising=False)
    return found


def own(tmp_path: Path, text: str = NATIVE, **settings: Any) -> TerraformProvisioner:
    """A provisioner with a module of the user's own."""
    module = tmp_path / "module"
    module.mkdir(exist_ok=True)
    (module / "main.tf").write_text(text)
    given = {"module": module, "providers": (), "caller_cidr": "127.0.0.1/32", "ready": "none", **settings}
    return TerraformProvisioner(settings=TerraformSettings(**given), data_folder=tmp_path / "data")


def test_a_module_of_ones_own(terraform: str, tmp_path: Path) -> None:
    provisioner = own(tmp_path)
    cluster = provisioner.make("run-1", "me", LATER, OFFER.times(2))
    assert [(m.id, m.address) for m in cluster.machines] == [("run-1-0", "127.0.0.1"), ("run-1-1", "127.0.0.1")]
    assert cluster.machines[0].data["ssh"]["port"] == 22
    assert provisioner.find("me") == [cluster]
    assert cluster.data["price_per_hour"] == OFFER.times(2).hourly
    assert 0 <= time.time() - cluster.data["created"] < 120
    folder = Path(cluster.data["folder"])
    listed = subprocess.run([terraform, "state", "list"], cwd=folder, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["terraform_data.machine[0]", "terraform_data.machine[1]"]
    assert provisioner.destroy(cluster).state is ClusterState.GONE
    assert not folder.exists()
    assert provisioner.poll([cluster])["run-1"].state is ClusterState.GONE


@pytest.mark.parametrize("settings", [{}, {"sweep": False}, {"sweep": False, "providers": ("aws",)}])
def test_machines_that_nobody_can_be_asked_about_are_not_gone(
    terraform: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """As when the next command runs on another server, or with another TRADEWIND_HOME."""
    here = own(tmp_path, **settings)
    made = here.make("run-1", "me", LATER, OFFER)
    (tmp_path / "elsewhere").mkdir()
    elsewhere = own(tmp_path / "elsewhere", **settings)
    resumed = Cluster("run-1", ClusterState.UNKNOWN)
    for _ in range(2):
        with pytest.raises(TeardownError, match="no folder here knows the machines of run run-1") as caught:
            elsewhere.destroy(resumed)
    assert caught.value.hint is not None
    assert here.find("me") == [made]
    # A process that is killed before it has noted that they are gone asks again.
    for cluster in (resumed, resumed, made):
        assert here.destroy(cluster).state is ClusterState.GONE
    # Who has looked at the provider says so.
    Path(caught.value.hint.rpartition(" ")[2]).touch()
    assert elsewhere.destroy(resumed).state is ClusterState.GONE
    # What was made again is not known to be gone by what was given back before.
    again = here.make("run-1", "me", LATER, OFFER)
    shutil.rmtree(again.data["folder"])
    with pytest.raises(TeardownError):
        here.destroy(again)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('resource "terraform_data" "x" {\n  nonsense = 1\n}\n', r"main\.tf:2: Unsupported argument"),
        ("output {\n", r"main\.tf:1: "),
        ('output "machines" {\n  value = var.nothing\n}\n', r"main\.tf:2: Reference to undeclared input variable"),
        ('output "other" {\n  value = 1\n}\n', "no output `machines`"),
    ],
)
def test_a_template_that_is_wrong(terraform: str, tmp_path: Path, text: str, words: str) -> None:
    provisioner = own(tmp_path, text)
    with pytest.raises(DeployError, match=words) as caught:
        provisioner.make("run-1", "me", LATER, OFFER)
    assert not caught.value.retryable
    assert provisioner.find("me") == []


def test_a_provider_that_cannot_be_installed(terraform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").mkdir()
    config = tmp_path / "terraform.rc"
    config.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{tmp_path / "none"}" }}\n}}\n')
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(config))
    provisioner = own(tmp_path, 'resource "random_id" "x" {\n  byte_length = 1\n}\n')
    with pytest.raises(MissingProgramError, match="hashicorp/random") as caught:
        provisioner.make("run-1", "me", LATER, OFFER)
    assert "mirror" in str(caught.value.hint)


def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgramError, match="no terraform or tofu program"):
        own(tmp_path).make("run-1", "me", LATER, OFFER)
    with pytest.raises(MissingProgramError, match=r"/no/such/tofu"):
        own(tmp_path, program="/no/such/tofu").make("run-1", "me", LATER, OFFER)


def test_making_takes_too_long(terraform: str, tmp_path: Path) -> None:
    provisioner = own(tmp_path, boot_seconds=3, stop_seconds=5, listing_seconds=0, variables={"seconds": 60})
    begun = time.monotonic()
    with pytest.raises(DeployError, match="after 3 s") as caught:
        provisioner.make("run-1", "me", LATER, OFFER)
    assert caught.value.retryable
    assert time.monotonic() - begun < 25
    assert provisioner.find("me") == []


def test_destroying_stops_terraform_where_it_is(terraform: str, tmp_path: Path) -> None:
    provisioner = own(tmp_path, stop_seconds=20, listing_seconds=0, variables={"seconds": 60})
    problems: list[DeployError] = []

    def make() -> None:
        try:
            provisioner.make("run-1", "me", LATER, OFFER)
        except DeployError as error:
            problems.append(error)

    maker = threading.Thread(target=make)
    maker.start()
    folder = TerraformRunFolder(tmp_path / "data/terraform/runs", "run-1")
    log = folder.path / "terraform.jsonl"
    eventually(lambda: log.exists() and "apply_start" in log.read_text())
    [cluster] = provisioner.find("me")
    assert cluster.state is ClusterState.BOOTING
    assert os.getsid(folder.processes()[0]) != os.getsid(0), "Ctrl-C at the terminal would reach it"
    assert provisioner.destroy(cluster).state is ClusterState.GONE
    maker.join(30)
    assert len(problems) == 1
    assert provisioner.find("me") == []
    assert folder.processes() == []


def applies(folder: TerraformRunFolder) -> bool:
    log = folder.path / "terraform.jsonl"
    return log.exists() and "apply_start" in log.read_text()


@pytest.mark.parametrize("adopted", [False, True])
def test_cancelling_a_run_ends_an_apply_and_takes_back_what_it_made(
    terraform: str, tmp_path: Path, adopted: bool
) -> None:
    """The time that machines may take to come up is not waited for, not by the next process either."""
    settings: dict[str, Any] = {"stop_seconds": 20, "listing_seconds": 0, "variables": {"seconds": 300}}
    request = request_for(tmp_path, ("true",), offer=OFFER)
    first = deployer_over(tmp_path, provisioner=own(tmp_path, **settings))
    launched = first.launch(row(), request)
    folder = TerraformRunFolder(tmp_path / "data/terraform/runs", "run-1")
    eventually(lambda: not first.poll() and applies(folder), 60)
    begun = time.monotonic()
    if adopted:
        # As after kill -9: terraform goes on, and nobody waits for it.
        second = deployer_over(tmp_path, provisioner=own(tmp_path, **settings))
        second.adopt(launched, request)
        ended = second.cancel("run-1", "enough")
        second.close()
    else:
        ended = first.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.reason, ended.machines) == (RunState.CANCELLED, "enough", ())
    assert ended.cost > 0
    assert time.monotonic() - begun < 60
    assert (folder.processes(), folder.path.exists()) == ([], False)
    assert own(tmp_path).find(None) == []
    first.close()


def test_giving_up_comes_at_any_moment(terraform: str, tmp_path: Path) -> None:
    provisioner = own(tmp_path, listing_seconds=0)
    provisioner.abandon("run-1")
    with pytest.raises(DeployError, match="given up"):
        provisioner.make("run-1", "me", LATER, OFFER)
    assert provisioner.find("me") == []
    cluster = provisioner.make("run-1", "me", LATER, OFFER)
    provisioner.abandon("run-1")
    assert provisioner.find("me") == [cluster], "it had been made by then"
    assert provisioner.destroy(cluster).state is ClusterState.GONE
    assert provisioner.make("run-1", "me", LATER, OFFER).machines
    provisioner.destroy(cluster)


def test_waiting_for_another_runs_init_is_given_up(terraform: str, tmp_path: Path) -> None:
    provisioner = own(tmp_path, listing_seconds=0)
    modules = tmp_path / "data/terraform/modules"
    modules.mkdir(parents=True)
    with (modules / "init.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(1.0, provisioner.abandon, ["run-1"]).start()
        begun = time.monotonic()
        with pytest.raises(DeployError, match="given up"):
            provisioner.make("run-1", "me", LATER, OFFER)
        assert time.monotonic() - begun < 20


def test_ready_when_the_ssh_server_answers(terraform: str, tmp_path: Path, sshd: Sshd) -> None:  # noqa: F811
    provisioner = own(tmp_path, ready="ssh", variables={"port": sshd.port})
    cluster = provisioner.make("run-1", "me", LATER, OFFER)
    assert cluster.state is ClusterState.BOOTING
    cluster = settled(provisioner, cluster, ClusterState.READY)
    assert 0 < cluster.setup_seconds < 60
    assert provisioner.destroy(cluster).state is ClusterState.GONE


def test_machines_that_never_answer_are_given_up(terraform: str, tmp_path: Path, sshd: Sshd) -> None:  # noqa: F811
    provisioner = own(tmp_path, boot_seconds=6, ssh=dict(sshd.facts), ready="docker")
    cluster = provisioner.make("run-1", "me", LATER, OFFER)
    cluster = settled(provisioner, cluster, ClusterState.FAILED)
    assert "not ready after 6 s" in cluster.reason
    assert "installing its container engine" in cluster.reason
    assert provisioner.destroy(cluster).state is ClusterState.GONE


def test_a_machine_without_an_engine_is_not_waited_for(
    terraform: str,
    tmp_path: Path,
    sshd: Sshd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until boot_seconds are over it would be paid for, for nothing."""
    (tmp_path / "failed").touch()
    monkeypatch.setattr(terraform_ready, "_FAILED_FILE", str(tmp_path / "failed"))
    provisioner = own(tmp_path, ssh=dict(sshd.facts), ready="docker")
    cluster = settled(provisioner, provisioner.make("run-1", "me", LATER, OFFER), ClusterState.FAILED)
    assert "could not install its container engine" in cluster.reason
    assert provisioner.destroy(cluster).state is ClusterState.GONE


@pytest.mark.parametrize(
    ("provider", "text", "kind"),
    [
        ("aws", "Error launching source instance: InsufficientInstanceCapacity: We do not have", CapacityError),
        ("aws", "creating EC2 Instance: VcpuLimitExceeded: You have requested more", CapacityError),
        (
            "aws",
            "Unsupported: Your requested instance type (t3.x) is not supported in your requested Availability Zone",
            CapacityError,
        ),
        ("aws", "unexpected state 'capacity-not-available', wanted target 'fulfilled'", CapacityError),
        ("aws", "RequestLimitExceeded: Request limit exceeded.", DeployError),
        ("aws", "UnauthorizedOperation: You are not authorized to perform this operation", CredentialsError),
        ("aws", "No valid credential sources found", CredentialsError),
        ("aws", "InvalidAMIID.NotFound: The image id '[ami-1]' does not exist", ImageError),
        ("aws", "InvalidParameterValue: Invalid value 't9.huge' for InstanceType.", OfferRefusedError),
        ("aws", "VPCIdNotSpecified: No default VPC for this user", PrerequisiteError),
        ("aws", "RequestError: send request failed caused by: dial tcp: connection refused", UnreachableError),
        (
            "gcp",
            "The zone 'x' does not have enough resources available to fulfill: ZONE_RESOURCE_POOL_EXHAUSTED",
            CapacityError,
        ),
        ("gcp", "Error 403: Quota 'CPUS' exceeded. Limit: 24.0 in region us-central1., quotaExceeded", CapacityError),
        ("gcp", "Error 403: Required 'compute.instances.create' permission for 'x', forbidden", CredentialsError),
        ("gcp", "could not find default credentials. See https://cloud.google.com", CredentialsError),
        ("gcp", "Error 404: The resource 'projects/p/zones/z/machineTypes/n9-big' was not found", OfferRefusedError),
        ("gcp", "Could not find image or family debian-99", ImageError),
        ("azure", "SkuNotAvailable: The requested size for resource is currently not available", CapacityError),
        ("azure", "OperationNotAllowed: results in exceeding approved standardDSv3Family Cores quota", CapacityError),
        ("azure", "ZonalAllocationFailed: Allocation failed", CapacityError),
        ("azure", "PublicIPCountLimitReached: Cannot create more than 20 public IP addresses", CapacityError),
        ("azure", "AuthorizationFailed: The client does not have authorization", CredentialsError),
        ("azure", "building account: could not acquire access token: please run 'az login'", CredentialsError),
        ("azure", "`subscription_id` is a required provider property when performing a plan", CredentialsError),
        ("gcp", "Failed to retrieve project, pid: , err: project: required field is not set", CredentialsError),
        ("azure", "PlatformImageNotFound: The platform image is not available", ImageError),
        ("azure", "InvalidParameter: The value Standard_X for parameter vmSize is invalid", OfferRefusedError),
        ("aws", "unexpected state 'constraint-not-fulfillable', wanted target 'fulfilled'", CapacityError),
        (
            "aws",
            "InvalidParameterCombination: The specified instance type is not eligible for Free Tier.",
            OfferRefusedError,
        ),
        ("aws", "InvalidInput: No default subnet for availability zone: 'us-east-1e'.", PrerequisiteError),
        (
            "aws",
            "InvalidBlockDeviceMapping: Volume of size 30GB is smaller than snapshot 'snap-1', expect size>= 75GB",
            PrerequisiteError,
        ),
        (
            "gcp",
            "A g2-standard-4 VM instance is currently unavailable in the us-central1-a zone. Alternatively, you can",
            CapacityError,
        ),
        (
            "gcp",
            "Error 400: Requested boot disk architecture (X86_64) is not compatible with machine type architecture "
            "(ARM64)., badRequest",
            OfferRefusedError,
        ),
        (
            "gcp",
            "Error 404: The resource 'projects/p/global/networks/default' was not found, notFound",
            PrerequisiteError,
        ),
        (
            "gcp",
            "Error 400: Invalid value for field 'resource.disks[0].initializeParams.diskSizeGb': '30'. Requested disk "
            "size cannot be smaller than the image size (50 GB)., invalid",
            PrerequisiteError,
        ),
        ("azure", "OverconstrainedZonalAllocationRequest: Allocation failed. VM(s) with", CapacityError),
        ("azure", "RequestDisallowedByPolicy: Resource 'x' was disallowed by policy", CredentialsError),
        (
            "azure",
            "BadRequest: The selected VM size 'Standard_A2_v2' cannot boot Hypervisor Generation '2'.",
            OfferRefusedError,
        ),
        (
            "azure",
            "InvalidParameter: The specified disk size 30 GB is smaller than the size of the corresponding disk in "
            "the VM image: 128 GB.",
            PrerequisiteError,
        ),
        ("aws", "unexpected state 'terminated': Server.SpotInstanceTermination: Spot instance", CapacityError),
        ("aws", "There is no Spot capacity available that matches your request.", CapacityError),
        ("aws", "Unsupported: The requested configuration is currently not supported. Please", CapacityError),
        (
            "aws",
            "operation error EC2: RunInstances, https response error StatusCode: 500, api error "
            "InsufficientInstanceCapacity: We currently do not have sufficient capacity",
            CapacityError,
        ),
        ("aws", "operation error EC2: RunInstances, https response error StatusCode: 503, api error", UnreachableError),
        ("aws", "Blocked: This account is currently blocked and not recognized as a valid", CredentialsError),
        (
            "gcp",
            "Error 412: Constraint constraints/compute.vmExternalIpAccess violated for project 1., conditionNotMet",
            CredentialsError,
        ),
        ("gcp", "IP_SPACE_EXHAUSTED: IP space of 'projects/p/regions/r/subnetworks/s' is exhausted.", CapacityError),
        ("gcp", "Error creating instance: googleapi: Error 503: Visibility check was unavailable", UnreachableError),
        ("gcp", "googleapi: Error 403: Quota exceeded for quota metric 'Queries', rateLimitExceeded", DeployError),
        # Microsoft, "Error messages for Azure Spot Virtual Machines and scale sets"
        ("azure", "Standard_D2s_v5. This size does not support Azure Spot.", CapacityError),
        ("azure", "SpotPriceGreaterThanProvidedMaxPrice: Unable to perform operation 'Create VM'", CapacityError),
        ("azure", "Azure Spot Virtual Machine is not supported for this VM size Standard_B1s.", OfferRefusedError),
        ("azure", "AzureSpotFeatureNotEnabledForSubscription: Subscription not enabled", CredentialsError),
        ("azure", "LocationNotSupportAvailabilityZones: The resource does not support availability", CapacityError),
        ("azure", "MissingSubscriptionRegistration: The subscription is not registered to use", CredentialsError),
    ],
)
def test_what_providers_complain_of(provider: str, text: str, kind: type[DeployError]) -> None:
    error = terraform_error([TerraformDiagnostic(text, file="main.tf", line=3)], provider, "it", applying=True)
    assert type(error) is kind
    assert text[:40] in str(error)
    assert error.hint or error.retryable


@pytest.mark.parametrize(
    ("provider", "text", "hint"),
    [
        ("gcp", "The resource 'projects/p/global/networks/default' was not found", "{network: ..., subnet_id: ...}"),
        ("aws", "No default subnet for availability zone: 'us-east-1e'", "{subnet_id: ...}"),
        ("azure", "The specified disk size 30 GB is smaller than the size of the corresponding disk", "set disk"),
    ],
)
def test_what_only_another_setting_helps_is_not_tried_again(provider: str, text: str, hint: str) -> None:
    error = terraform_error([TerraformDiagnostic(text)], provider, "it", applying=True)
    assert not error.retryable
    assert hint in str(error.hint)


def test_the_log_of_a_killed_terraform(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"type": "apply_start"}\nno json\n[1]\n{"type": "outputs", "outputs": {"a": {"val')
    outcome = read_log(log, -9)
    assert (outcome.applying, outcome.outputs, outcome.cut_off) == (True, None, True)
    assert isinstance(init_error("tofu", "╷\n│ Error: no such provider\n╵\n"), MissingProgramError)


def test_offers_that_are_refused(tmp_path: Path) -> None:
    provisioner = TerraformProvisioner(settings=TerraformSettings(providers=("aws", "gcp")), data_folder=tmp_path)

    def why(provider: str, kind: str, region: str = "here") -> str:
        return provisioner.refuses(Offer(provider, kind, 1, 1, 1.0, region=region))

    assert why("aws", "m5.large") == why("gcp", "n2-standard-4") == why("aws", "u-6tb1.metal") == ""
    assert "azure is not in the setting providers" in why("azure", "Standard_D2s_v5")
    assert "names a region" in why("aws", "m5.large", "")
    assert "no name of an instance type" in why("aws", "n2-standard-4")
    with pytest.raises(OfferRefusedError, match="providers"):
        provisioner.make("run-1", "me", LATER, Offer("azure", "Standard_D2s_v5", 1, 1, 1.0, region="eastus"))


@pytest.mark.parametrize(
    ("provider", "kind", "settings", "words"),
    [
        ("aws", "p3.2xlarge", {}, "the default image has no GPU driver"),
        ("gcp", "g2-standard-4", {"variables": {"project": "p"}}, "the default image has no GPU driver"),
        ("azure", "Standard_NC4as_T4_v3", {}, "the default image has no GPU driver"),
        ("aws", "p3.2xlarge", {"image": "ami-1"}, ""),
        ("azure", "Standard_NC4as_T4_v3", {"variables": {"image_name": "a:b:c:latest"}}, ""),
        ("gcp", "a2-highgpu-1g", {"image": "p/f"}, ""),
        ("gcp", "a4x-highgpu-4g", {"image": "p/f"}, ""),
        ("gcp", "n1-standard-8", {"image": "p/f"}, "the shipped module adds no GPUs"),
        ("gcp", "n1-standard-8", {"module": MODULES / "gcp"}, ""),
    ],
)
def test_gpus_that_a_shipped_module_cannot_serve(
    tmp_path: Path, provider: str, kind: str, settings: dict[str, Any], words: str
) -> None:
    given = TerraformSettings(providers=("aws", "azure", "gcp"), **settings)
    provisioner = TerraformProvisioner(settings=given, data_folder=tmp_path)
    why = provisioner.refuses(Offer(provider, kind, 8, 61, 3.0, region="here", gpus=1))
    assert words in why and bool(why) is bool(words)
    assert provisioner.refuses(Offer(provider, kind, 8, 61, 3.0, region="here")) == ""


@pytest.mark.parametrize(
    ("kind", "spot", "variables", "refused"),
    [
        ("t3.small", True, {}, True),
        ("t4g.nano", True, {"cpu_credits": "standard"}, True),
        ("t3.small", True, {"cpu_credits": "unlimited"}, False),
        ("t3.small", False, {}, False),
        ("m5.large", True, {}, False),
        ("trn1.2xlarge", True, {}, False),
    ],
)
def test_spot_machines_that_would_be_billed_for_more_than_their_price(
    tmp_path: Path, kind: str, spot: bool, variables: dict[str, str], refused: bool
) -> None:
    """Amazon's default lends burstable machines CPU at 0.05 USD an hour; a spot request cannot say otherwise."""
    provisioner = TerraformProvisioner(settings=TerraformSettings(variables=variables), data_folder=tmp_path)
    why = provisioner.refuses(Offer("aws", kind, 2, 2, 0.01, region="us-east-1", spot=spot))
    assert ("cpu_credits: unlimited" in why) is refused and bool(why) is refused


def test_machines_that_nobody_would_reach_are_refused(tmp_path: Path) -> None:
    """Azure's module makes a network of its own, where private addresses lead nowhere."""
    subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    for variables, refused in (
        ({"public_address": False}, True),
        ({"public_address": "false", "subnet_id": "subnet-1"}, True),
        ({"public_address": False, "vnet_subnet_id": subnet}, False),
        ({"public_address": True}, False),
    ):
        given = TerraformSettings(providers=("aws", "azure"), variables=variables, caller_cidr="10.0.0.0/8")
        provisioner = TerraformProvisioner(settings=given, data_folder=tmp_path)
        why = provisioner.refuses(Offer("azure", "Standard_D2s_v5", 2, 8, 0.1, region="eastus"))
        assert ("vnet_subnet_id" in why) is refused, variables
        assert provisioner.refuses(Offer("aws", "m5.large", 2, 8, 0.1, region="us-east-1")) == ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variables": {"public_address": False, "subnet_id": "subnet-1"}}, "by their private addresses"),
        ({"ssh": {"jump": "bastion"}}, "by way of the host in ssh.jump"),
        ({"ssh": {"jump": "bastion"}, "caller_cidr": "10.0.0.7"}, ""),
        ({"module": MODULES / "aws", "ssh": {"jump": "bastion"}}, ""),
        ({"ssh": {"host": "h"}}, ""),
    ],
)
def test_who_is_let_in_where_the_internets_view_of_this_machine_does_not_count(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    """Such machines would be paid for until boot_seconds are over, and never be ready."""
    provisioner = TerraformProvisioner(settings=TerraformSettings(**settings), data_folder=tmp_path)
    why = provisioner.refuses(Offer("aws", "m5.large", 2, 8, 0.1, region="us-east-1"))
    assert words in why and bool(why) is bool(words)


def test_networks_are_written_as_providers_want_them() -> None:
    """Amazon's plugin refuses an address without its length, and Google one with more than its length."""
    for written, wanted in (("198.51.100.7", "198.51.100.7/32"), ("10.1.2.3/8", "10.0.0.0/8")):
        assert TerraformSettings(caller_cidr=written).caller_cidr == wanted
    assert TerraformSettings(caller_cidr="2001:db8::1", module=MODULES / "aws").caller_cidr == "2001:db8::1/128"


def test_settings_that_are_refused(tmp_path: Path) -> None:
    for wrong, words in (
        ({"caller_cidr": "0.0.0.0/0"}, "whole internet"),
        ({"caller_cidr": "::/0", "module": MODULES / "aws"}, "whole internet"),
        ({"caller_cidr": "2001:db8::1"}, "is of IPv6"),
        ({"caller_cidr": "home"}, "does not appear to be"),
        ({"module": tmp_path}, "no \\*.tf files"),
        ({"ssh": {"hots": "x"}}, "unknown key 'hots'"),
        ({"ssh": {"host": "http://x"}}, "http:// is no way"),
        ({"ssh": {"jump": "a,b/c"}}, "is no host"),
        ({"variables": {"nodes": 3}}, "nodes is set by Tradewind itself: it is the offer's"),
        ({"variables": {"lease_seconds": 0}}, "found and ended"),
        ({"variables": {"disk_gib": 3}}, "use the setting disk"),
        ({"variables": {"host_key_public": "x"}, "module": MODULES / "aws"}, "keys of its own"),
        ({"providers": ()}, "there is no module"),
    ):
        with pytest.raises(ValidationError, match=words):
            TerraformSettings(**wrong)
    assert TerraformSettings(caller_cidr="0.0.0.0/0", open_to_all=True).open_to_all
    assert TerraformSettings(variables={"subnet_id": "x", "zone": "a", "mine": [1]}).variables["zone"] == "a"
    assert TerraformSettings(ssh={"host": "ssh://me@h:2222", "port": 22}).ssh == {"host": "h", "user": "me", "port": 22}


def test_the_callers_address() -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"198.51.100.7\n" if self.path == "/" else b"<html>")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        assert address_of_this_machine(base + "/") == "198.51.100.7/32"
        with pytest.raises(DeployError, match="does not say") as caught:
            address_of_this_machine(base + "/other")
        assert "caller_cidr" in str(caught.value.hint)
        server.shutdown()


def test_a_run_folder(tmp_path: Path) -> None:
    folder = TerraformRunFolder(tmp_path, "../evil run")
    assert folder.path.parent == tmp_path
    assert folder.read() is None
    record = TerraformRunRecord("../evil run", "me", 1.0, OFFER.to_json(), "here", "aws")
    assert folder.create(record) == folder.read() == record
    keys = folder.public_keys()
    assert keys == folder.public_keys()
    assert folder.identity.stat().st_mode & 0o777 == 0o600
    assert folder.known_hosts.read_text() == f"* {keys['host_key_public']}\n"
    with folder.locked(1), pytest.raises(DeployError, match="another process"), folder.locked(0.1):
        pass
    folder.remove()
    with pytest.raises(FileNotFoundError):
        folder.write(record)
    assert list(tmp_path.iterdir()) == [folder.returned]
    assert folder.create(record) == folder.read()
    assert not folder.returned.exists()


def test_what_tells_that_machines_were_given_back_does_not_stay_for_ever(tmp_path: Path) -> None:
    old, young, new = (TerraformRunFolder(tmp_path, name) for name in ("old", "young", "new"))
    old.remove()
    young.remove()
    os.utime(old.returned, (time.time() - 31 * 86400,) * 2)
    new.remove()
    assert sorted(tmp_path.iterdir()) == sorted([young.returned, new.returned])


def test_a_state_that_cannot_be_read_counts_as_full(tmp_path: Path) -> None:
    folder = TerraformRunFolder(tmp_path, "run-1")
    folder.create(TerraformRunRecord("run-1", "me", 1.0, OFFER.to_json(), "here", "aws"))
    assert folder.kinds() == set()
    folder.state.write_text("{")
    assert folder.kinds() == {"?"}
    (folder.path / "run.json").write_text("{")
    with pytest.raises(DeployError, match=r"run\.json"):
        folder.read()


@pytest.fixture
def no_amazon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where Amazon's programs look for files; there is nothing of Amazon on this machine beside it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def found() -> tuple[str, str, str | None]:
    keys = aws_credentials.find_aws_credentials()
    return keys.access_key, keys.secret_key, keys.token


def test_where_amazons_credentials_are_found(no_amazon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CredentialsError, match="no credentials for aws"):
        found()
    assert aws_credentials.default_region() == "us-east-1"
    (no_amazon / "credentials").write_text("[work]\naws_access_key_id = a\naws_secret_access_key = b\n")
    (no_amazon / "config").write_text(
        "[profile work]\nregion = eu-west-3\n[profile sso]\ncredential_process = said it\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert (found(), aws_credentials.default_region()) == (("a", "b", None), "eu-west-3")
    said = no_amazon / "said"
    document = '{"Version": 1, "AccessKeyId": "c", "SecretAccessKey": "d", "SessionToken": "e"}'
    said.write_text(f"#!/bin/sh\n[ \"$1\" = it ] && echo '{document}'\n")
    said.chmod(0o755)
    monkeypatch.setenv("AWS_PROFILE", "sso")
    assert found() == ("c", "d", "e")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "f")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "g")
    assert found() == ("f", "g", None)
    with pytest.raises(UnreachableError, match="does not answer"):
        Ec2Client("http://127.0.0.1:9").call("us-east-1", "DescribeInstances")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert aws_credentials.default_region() == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert aws_credentials.default_region() == "eu-west-2"


@pytest.mark.parametrize(
    ("config", "variables", "complaint"),
    [
        ("", {"AWS_PROFILE": "nobody"}, "profile .nobody. could not be found"),
        ("[default", {}, "Unable to parse config file"),
        ("", {"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY"),
        ("[default]\ncredential_process = false\n", {}, "custom-process"),
        (
            "[default]\nrole_arn = r\nsource_profile = b\n[profile b]\nrole_arn = x\nmfa_serial = y\n",
            {},
            "the profile b asks for a code",
        ),
    ],
)
def test_credentials_that_are_none(
    no_amazon: Path, monkeypatch: pytest.MonkeyPatch, config: str, variables: dict[str, str], complaint: str
) -> None:
    """Each in one line, and nothing is waited for at the terminal."""
    (no_amazon / "config").write_text(config)
    (no_amazon / "false").write_text("#!/bin/sh\nexit 1\n")
    (no_amazon / "false").chmod(0o755)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CredentialsError, match=f"no credentials for aws: .*{complaint}") as caught:
        AmazonCloud((), "http://127.0.0.1:9").check()
    assert "\n" not in caught.value.message
    assert caught.value.hint
    with pytest.raises(CredentialsError):
        AmazonCloud((), "http://127.0.0.1:9").find(None)


def test_renewed_credentials_are_seen(no_amazon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terraform_aws, "_KEPT_SECONDS", -1.0)
    ec2, used = Ec2Client("http://127.0.0.1:9"), []
    for key in ("old", "new"):
        (no_amazon / "credentials").write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = b\n")
        used.append(ec2._client("ec2", "us-east-1")._get_credentials().access_key)
    assert used == ["old", "new"]


def test_without_botocore_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    for call in (AmazonCloud((), "").check, AmazonCloud((), "").account, lambda: AmazonCloud((), "").find(None)):
        with pytest.raises(MissingProgramError, match="botocore") as caught:
            call()
        assert "'tradewind[terraform]'" in str(caught.value.hint)
    assert "'tradewind[terraform]'" in TerraformProvisioner.missing()


def test_nothing_of_botocore_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from tradewind.deployer.provisioner.terraform import provisioner; print('botocore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


_FAKE = """#!{python} -IS
import json, pathlib, sys
place = pathlib.Path({place!r})
state = json.loads(place.read_text())
words = sys.argv[1:]
with (place.parent / "asked").open("a") as asked:
    asked.write(json.dumps(words) + "\\n")
if state.get("error"):
    sys.exit(state["error"])
{body}
place.write_text(json.dumps(state))
"""

_GCLOUD = """
kind, verb = words[1], words[2]
if verb == "list":
    wanted = next(w for w in words if w.startswith("--filter=")).removeprefix("--filter=")
    print(json.dumps([e for e in state[kind] if all(
        f"{k}={v}" in wanted or k not in wanted or f"{k}:*" in wanted for k, v in e.get("labels", {}).items())]))
else:
    gone = words[3 : next(i for i, word in enumerate(words) if word.startswith("--"))]
    state[kind] = [e for e in state[kind] if e["name"] not in gone]
"""

_AZ = """
within = words[words.index("--subscription") + 1] if "--subscription" in words else "mine"
if words[1] == "show":
    print(json.dumps({"id": within}))
elif words[1] == "list":
    key, _, value = words[3].partition("=")
    print(json.dumps([g for g in state["groups"] if key in g["tags"] and value in ("", g["tags"][key])
                      and g.get("subscription", "mine") == within]))
else:
    state["groups"] = [g for g in state["groups"] if g["name"] != words[3]]
"""


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str, state: dict[str, Any]) -> Path:
    """A provider's program that keeps its state in a file."""
    place = tmp_path / "state.json"
    place.write_text(json.dumps(state))
    program = tmp_path / name
    program.write_text(_FAKE.format(python=sys.executable, place=str(place), body=body))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return place


def test_leftovers_at_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"tradewind-run": "run-1", "tradewind-owner": "me", "tradewind-expires": "4000000000"}
    labels |= {"tradewind-created": "1700000000", "tradewind-price": "0_0116"}
    others = {**labels, "tradewind-run": "run-2", "tradewind-owner": "you"}
    zone = "https://www.googleapis.com/compute/v1/projects/p/zones/europe-west1-b"
    rules = [
        {"name": "tradewind-run-1-ssh", "description": json.dumps({**labels, "region": "europe-west1"})},
        {"name": "tradewind-other", "description": "somebody's"},
    ]
    state = {
        "instances": [{"name": "a", "zone": zone, "labels": labels}, {"name": "b", "zone": zone, "labels": others}],
        "disks": [{"name": "a", "zone": zone, "labels": labels}],
        "firewall-rules": rules,
    }
    place = fake(tmp_path, monkeypatch, "gcloud", _GCLOUD, state)
    google = GoogleCloud("p")
    google.check()
    [mine] = google.find("me")
    assert (mine.run_id, mine.region, mine.machines, mine.expires) == ("run-1", "europe-west1", ("a",), 4e9)
    assert (mine.created, mine.price_per_hour) == (1.7e9, 0.0116)
    assert {each.run_id for each in google.find(None)} == {"run-1", "run-2"}
    assert google.give_back("run-1", "europe-west1") == []
    left = json.loads(place.read_text())
    assert [each["name"] for kind in left for each in left[kind]] == ["b", "tradewind-other"]
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert all(words[-2:] == ["--project", "p"] for words in asked)


def test_leftovers_at_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"tradewind-run": "run-1", "tradewind-owner": "me", "tradewind-expires": "4000000000"}
    tags |= {"tradewind-created": "1700000000", "tradewind-price": "unknown"}
    place = fake(
        tmp_path,
        monkeypatch,
        "az",
        _AZ,
        {"groups": [{"name": "tradewind-run-1", "location": "eastus", "tags": tags}]},
    )
    azure = AzureCloud()
    azure.check()
    [mine] = azure.find("me")
    assert (mine.run_id, mine.region, mine.machines) == ("run-1", "eastus", ("tradewind-run-1",))
    assert (mine.created, mine.price_per_hour) == (1.7e9, None)
    assert azure.find("you") == []
    assert azure.give_back("run-1", "eastus") == ["resource group tradewind-run-1"], "it is on its way"
    assert azure.give_back("run-1", "eastus") == []
    assert azure.find(None) == []
    place.write_text(json.dumps({"error": "Please run 'az login' to setup account."}))
    with pytest.raises(CredentialsError, match="az login"):
        azure.find(None)


def test_the_subscription_and_the_project_are_terraforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"tradewind-run": "run-1", "tradewind-owner": "me"}
    group = {"name": "g", "location": "eastus", "tags": tags, "subscription": "b"}
    fake(tmp_path, monkeypatch, "az", _AZ, {"groups": [group]})
    assert (AzureCloud().account(), AzureCloud().find(None)) == ("mine", [])
    assert AzureCloud("b").account() == "b"
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", "b")
    assert [each.run_id for each in AzureCloud().find("me")] == ["run-1"]
    assert AzureCloud("mine").find("me") == []
    fake(tmp_path, monkeypatch, "gcloud", 'print(json.dumps("set") if words[0] == "config" else [])', {})
    assert (GoogleCloud("").account(), GoogleCloud("p").account()) == ("set", "p")
    monkeypatch.setenv("CLOUDSDK_CORE_PROJECT", "last")
    monkeypatch.setenv("GOOGLE_PROJECT", "first")
    assert GoogleCloud("").account() == "first"


def made_at_azure(tmp_path: Path, account: str) -> Cluster:
    """What a process leaves that has made a machine at Azure."""
    folder = TerraformRunFolder(tmp_path / "data" / "terraform" / "runs", "run-1")
    offer = {"provider": "azure", "instance_type": "x", "vcpu": 1, "memory_gib": 1, "price_per_hour": 1}
    with folder.locked(1.0):
        folder.create(
            TerraformRunRecord("run-1", "me", LATER, offer, "eastus", "azure", started=1.0, made=2.0, account=account)
        )
    machine = {"mode": "managed", "type": "azurerm_linux_virtual_machine", "instances": [{}]}
    folder.state.write_text(json.dumps({"resources": [machine]}))
    return Cluster("run-1", ClusterState.UNKNOWN, owner="me")


def test_machines_are_ended_in_the_subscription_that_they_were_made_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = {"tradewind-run": "run-1", "tradewind-owner": "me"}
    group = {"name": "g", "location": "eastus", "tags": tags, "subscription": "b"}
    place = fake(tmp_path, monkeypatch, "az", _AZ, {"groups": [group]})
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", "another")
    assert own(tmp_path, providers=("azure",)).destroy(made_at_azure(tmp_path, "b")).state is ClusterState.GONE
    assert json.loads(place.read_text()) == {"groups": []}


def test_a_provider_that_knows_nothing_of_what_the_state_has_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the note of an earlier version, which does not say where."""
    fake(tmp_path, monkeypatch, "az", _AZ, {"groups": []})
    asked: list[str] = []

    def refuse(self: TerraformCli, folder: TerraformRunFolder, lock: int, verb: str, seconds: float) -> TerraformResult:
        asked.append(verb)
        return TerraformResult(1)

    monkeypatch.setattr(TerraformCli, "run", refuse)
    with pytest.raises(TeardownError, match="terraform did not destroy the machines of run run-1"):
        own(tmp_path, providers=("azure",)).destroy(made_at_azure(tmp_path, ""))
    assert asked == ["destroy"]
    assert [each.run_id for each in own(tmp_path, providers=("azure",)).find("me")] == ["run-1"]


def test_a_providers_program_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for cloud in (GoogleCloud(""), AzureCloud()):
        for call in (cloud.check, lambda cloud=cloud: cloud.find(None)):
            with pytest.raises(MissingProgramError):
                call()
    with pytest.raises(MissingProgramError, match="leave gcp out"):
        ask("gcp", "gcloud", "version")


def test_what_is_not_taken_back_is_said(terraform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"tradewind-run": "run-1", "tradewind-owner": "me"}
    group = {"name": "g", "location": "eastus", "tags": tags, "properties": {"provisioningState": "Deleting"}}
    fake(tmp_path, monkeypatch, "az", _AZ, {"groups": [group]})
    provisioner = own(tmp_path, providers=("azure",), destroy_seconds=0.5)
    [orphan] = provisioner.find("me")
    with pytest.raises(TeardownError, match="resource group g"):
        provisioner.destroy(orphan)
    assert [each.run_id for each in provisioner.find("me")] == ["run-1"]


def test_shipped_modules_are_well_formed(terraform: str) -> None:
    words = [terraform, "fmt", "-check", "-diff", "-recursive", str(MODULES)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    given = {
        name: re.findall(r'^variable "(\w+)"', (MODULES / name / "variables.tf").read_text(), re.M)
        for name in ("aws", "azure", "gcp")
    }
    for name, declared in given.items():
        text = (MODULES / name / "main.tf").read_text() + (MODULES / name / "outputs.tf").read_text()
        used = set(re.findall(r"\bvar\.(\w+)", text))
        assert used <= set(declared), name
        assert set(declared) - used <= {"arch"}, name
        for tag in ("tradewind-run", "tradewind-owner", "tradewind-expires", "tradewind-created", "tradewind-price"):
            assert tag in text, name
        assert 'output "machines"' in text, name


@pytest.mark.parametrize("docker", [True, False])
def test_cloud_init(terraform: str, tmp_path: Path, docker: bool) -> None:
    """What machines do when they boot, as Terraform fills it in."""
    shutil.copy(MODULES / "cloud-init.yaml.tftpl", tmp_path)
    keys = TerraformRunFolder(tmp_path, "run-1")
    keys.create(TerraformRunRecord("run-1", "me", 1.0, OFFER.to_json(), "here", "aws"))
    given: dict[str, Any] = {**keys.public_keys(), "expires": 4000000000, "install_docker": docker}
    given["lease_seconds"] = 3600
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "main.tf").write_text(
        'output "text" {\n  value = templatefile("cloud-init.yaml.tftpl", jsondecode(file("given.json")))\n}\n'
    )
    words = [terraform, "apply", "-auto-approve", "-json", "-input=false"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    [text] = [
        each["outputs"]["text"]["value"]
        for each in lines
        if each["type"] == "outputs" and "value" in each["outputs"]["text"]
    ]
    assert text.startswith("#cloud-config\n")
    document = yaml.safe_load(text)
    assert document["ssh_keys"]["ed25519_private"].strip() == given["host_key_private"].strip()
    assert document["users"][0]["ssh_authorized_keys"][0] == given["login_key_public"]
    assert (document["ssh_pwauth"], document["disable_root"]) == (False, True)
    scripts = [step[2] for step in document["bootcmd"]]
    script = scripts[0]
    for code in (*scripts, *(step[2] for step in document["runcmd"] if step[0] == "sh")):
        subprocess.run(["sh", "-n", "-c", code], check=True, timeout=10)
    assert "4000000000" in script
    assert ("docker" in text) is docker
    assert "tradewind-ready" in str(document["runcmd"][-1])
    # The script writes units that systemd takes, with a clock that ends the machine.
    root = tmp_path / "root"
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin/systemctl").write_text("#!/bin/sh\nexit 0\n")
    (root / "bin/systemctl").chmod(0o755)
    environment = {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", "-c", script.replace("/etc/", f"{root}/etc/")], env=environment, check=True, timeout=10)
    unit = (root / "etc/systemd/system/tradewind-lease.service").read_text()
    assert "[Service]\nType=oneshot\n" in unit
    assert (root / "etc/tradewind-expires").read_text() == "4000000000\n"
