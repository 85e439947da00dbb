"""Makes machines with Terraform or OpenTofu."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from tradewind import plugins
from tradewind.deployer.aws_credentials import require_botocore
from tradewind.deployer.provisioner.base import (
    Cluster,
    ClusterState,
    MakesMachines,
    Provisioner,
    ReachableBySsh,
    RunsDocker,
    TagsMachines,
    TurnsOffMachines,
)
from tradewind.deployer.provisioner.terraform.aws import AmazonCloud
from tradewind.deployer.provisioner.terraform.azure import AzureCloud
from tradewind.deployer.provisioner.terraform.cli import (
    TerraformCli,
    TerraformResult,
    declared_variables,
    find_terraform,
)
from tradewind.deployer.provisioner.terraform.cloud import Cloud, orphan_cluster
from tradewind.deployer.provisioner.terraform.errors import terraform_error
from tradewind.deployer.provisioner.terraform.gcp import GoogleCloud
from tradewind.deployer.provisioner.terraform.machine_health import (
    MachineLossMonitor,
    ReadinessProber,
    address_of_this_machine,
    machines_from_output,
)
from tradewind.deployer.provisioner.terraform.run_folder import (
    TerraformRunFolder,
    TerraformRunRecord,
    find_keygen,
    write_private,
)
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings, lease_warning, offer_refusal
from tradewind.errors import (
    CapacityError,
    DeployError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    TeardownError,
    TradewindError,
)
from tradewind.problem import Machine, Offer
from tradewind.utils.units import count

_LEAST_PATIENCE = 60.0


class ProviderClouds:
    """The providers of some settings, each within an account or project; may be used by several threads.

    Args:
        settings: Of the provisioner.
    """

    def __init__(self, settings: TerraformSettings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._asked: dict[tuple[str, str], Cloud] = {}

    def cloud(self, provider: str) -> Cloud | None:
        """Give the cloud that knows what a run of a provider has, or None where there is none."""
        wanted = self._settings.sweep and provider in self._settings.providers
        return self._of(provider) if wanted else None

    def orphans(self, owner: str | None) -> Iterator[Cluster]:
        """List what the providers have of an owner, or of all."""
        for provider in self._settings.providers if self._settings.sweep else ():
            for each in self._of(provider).find(owner):
                yield orphan_cluster(each, provider, owner)

    def of_run(self, record: TerraformRunRecord) -> list[tuple[Cloud, str]]:
        """List where things of a run may be: its own region, or all of our providers where that is not known.

        Raises:
            TeardownError: They are in an account that cannot be asked with the credentials of now.
        """
        given = self._settings
        if not given.sweep:
            return []
        if record.provider in given.providers and record.region:
            return [(self._of(record.provider, record.account), record.region)]
        if record.provider and record.region:
            return []
        found = [(self._of(name), each) for name in given.providers for each in self._of(name).find(None)]
        return [(cloud, each.region) for cloud, each in found if each.run_id == record.run_id]

    def asked_for(self, record: TerraformRunRecord) -> tuple[Cloud, str] | None:
        """Give the cloud and region that know if the machines of a run are still there; None where there is none."""
        given = self._settings
        if not (given.sweep and record.provider in given.providers and record.region):
            return None
        return self._of(record.provider, record.account), record.region

    def check(self, folder: TerraformRunFolder, record: TerraformRunRecord) -> None:
        """Make sure that somebody knows whether there are machines that no folder here knows.

        Raises:
            TeardownError: Nobody does.
        """
        given = self._settings
        # With a module of one's own they may be another provider's than those that are asked.
        named = record.provider in given.providers if record.provider else bool(given.providers)
        if folder.returned.exists() or (given.sweep and given.module is None and named) or self.of_run(record):
            return
        raise TeardownError(
            f"no folder here knows the machines of run {record.run_id}, and no provider can be asked for them",
            hint="repeat this with the TRADEWIND_HOME that they were made with; or end them at the provider by hand, "
            f"and then make the file {folder.returned}",
        )

    def _of(self, provider: str, account: str = "") -> Cloud:
        with self._guard:
            cloud = self._asked.get((provider, account))
            if cloud is None:
                cloud = self._asked[provider, account] = self._make(provider, account)
        return cloud

    def _make(self, provider: str, account: str) -> Cloud:
        given = self._settings
        if provider == "aws":
            return AmazonCloud(given.regions, given.endpoint, account)
        if provider == "gcp":
            # Twice in one attempt they may have to be waited for.
            patience = max(_LEAST_PATIENCE, given.destroy_seconds / 2)
            return GoogleCloud(account or str(given.variables.get("project", "")), patience)
        return AzureCloud(account or str(given.variables.get("subscription_id", "")))


_POLL_SECONDS = 2.0


class Teardown:
    """Takes back what runs have made: by tag at the provider, and with Terraform what only its state knows.

    Args:
        settings: Of the provisioner.
        places: The providers of the settings.
        program: Gives Terraform.
    """

    def __init__(
        self, settings: TerraformSettings, places: ProviderClouds, program: Callable[[], TerraformCli]
    ) -> None:
        self._settings = settings
        self._clouds = places
        self._program = program

    def clear(self, folder: TerraformRunFolder, record: TerraformRunRecord, lock: int, now: float) -> None:
        """Take back all that a run has; the lock is held.

        Args:
            folder: The run's.
            record: What is known of it.
            lock: The number of its lock.
            now: In seconds since the epoch.

        Raises:
            TeardownError: Something is still there, or nobody knows whether it is.
        """
        given = self._settings
        until = time.monotonic() + given.destroy_seconds
        listed_by = time.monotonic() + (given.listing_seconds if record.applying else 0.0)
        places = self._clouds.of_run(record)
        seen, problem = self._asked(places, record)
        # Where the provider knows nothing of what the state has, it may have been asked in the wrong place.
        covered: frozenset[str] = frozenset().union(*(cloud.covers for cloud in seen))
        if folder.kinds() - covered:
            self._destroy(folder, record, lock)
            if problem is not None:
                folder.write(replace(record, ended=record.ended or now))
        if problem is not None:
            raise TeardownError(
                f"what is left of run {record.run_id} cannot be looked for at {record.provider}: {problem}",
                hint=problem.hint,
            ) from problem
        while True:
            left = [words for cloud, region in places for words in cloud.give_back(record.run_id, region)]
            if not left and time.monotonic() >= listed_by:
                return
            if time.monotonic() > until:
                raise TeardownError(
                    f"the provider still has {', '.join(left)} of run {record.run_id}", hint="they may still cost money"
                )
            time.sleep(min(_POLL_SECONDS, max(0.1, listed_by - time.monotonic())) if not left else _POLL_SECONDS)

    def _asked(
        self, places: list[tuple[Cloud, str]], record: TerraformRunRecord
    ) -> tuple[list[Cloud], TradewindError | None]:
        """Ask every place that may have something of a run; give those that do, and why some did not answer."""
        seen: list[Cloud] = []
        problem: TradewindError | None = None
        for cloud, region in places:
            try:
                if cloud.give_back(record.run_id, region):
                    seen.append(cloud)
            except TeardownError:
                # Terraform would ask the wrong account, too, and forget all that it does not find there.
                raise
            except (DeployError, MissingProgramError) as error:
                problem = error  # Terraform has credentials of its own, which may be good
        return seen, problem

    def _destroy(self, folder: TerraformRunFolder, record: TerraformRunRecord, lock: int) -> None:
        outcome = self._program().run(folder, lock, "destroy", self._settings.destroy_seconds)
        if outcome.code:
            why = str(outcome.diagnostics[0]) if outcome.diagnostics else f"exit code {outcome.code}"
            raise TeardownError(f"terraform did not destroy the machines of run {record.run_id}: {why}")


_log = logging.getLogger("tradewind.deployer")

_MODULES = Path(__file__).parent / "modules"
_CLOUD_INIT = _MODULES / "cloud-init.yaml.tftpl"
_ACCOUNTS = {"azure": "subscription_id", "gcp": "project"}
"""The variable of a shipped module that says in whose account, subscription or project machines are made."""


class TerraformProvisioner(
    Provisioner,
    MakesMachines,
    TagsMachines,
    ReachableBySsh,
    RunsDocker,
    TurnsOffMachines,
    plugins.CallsNetwork,
):
    """Makes machines at Amazon, Google or Azure with Terraform or OpenTofu, or with a module of your own.

    Each run has a folder of its own below the data folder: its record, which is written before anything is created, a
    copy of the module, Terraform's state, and its keys. Terraform runs in a session of its own and holds the run's
    lock, so that it goes on when this process is killed, and the next process waits for it. If Terraform itself is
    killed, whatever it may have created is found by tag at the provider.
    """

    name = "terraform"
    Settings = TerraformSettings
    needs = (find_terraform, find_keygen, require_botocore)
    settings: TerraformSettings
    patience_seconds: ClassVar[float] = 1200.0

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._base = data_folder / "terraform"
        self._runs = self._base / "runs"
        self._prober = ReadinessProber()
        self._loss_monitor = MachineLossMonitor()
        self._guard = threading.Lock()
        self._clouds = ProviderClouds(self.settings)
        self._teardown = Teardown(self.settings, self._clouds, self._program)
        self._abandoned: set[str] = set()
        self._warned = False

    def refuses(self, offer: Offer) -> str:
        """Say why the machines of an offer can never be made; see `Provisioner.refuses`."""
        return offer_refusal(self.settings, offer)

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Make the machines of an offer, and wait until Terraform has made them; see `Provisioner.make`.

        Raises:
            CapacityError: None of the zones has such machines, or a quota is used up.
            OfferRefusedError: The provider does not know the instance type or region.
            CredentialsError: It does not know us.
            ImageError: The machine image is not there.
            MissingProgramError: Terraform, a provider's plugin or a program to look for leftovers is not there.
            DeployError: The template is wrong, or something else.
        """
        if why := self.refuses(offer):
            raise OfferRefusedError(f"provisioner terraform cannot make {offer.key}: {why}")
        try:
            return self._make(run_id, owner, expires, offer)
        finally:
            self._wanted(run_id)

    def _make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        folder = TerraformRunFolder(self._runs, run_id)
        folder.wait(self.settings.boot_seconds, lambda: self._unwanted(run_id))
        with folder.locked(self.settings.boot_seconds, lambda: self._unwanted(run_id)) as lock:
            record = folder.read()
            if self._unwanted(run_id):
                # Whatever an earlier attempt has made, destroying takes back.
                raise DeployError(f"making the machines of run {run_id} was given up")
            if record is not None and record.made is not None and record.ended is None:
                return self._cluster(folder, record)
            if record is not None:
                # An earlier attempt was cut off, and may have created what its state does not know.
                self._clear(folder, record, lock)
            if (cloud := self._clouds.cloud(offer.provider)) is not None:
                cloud.check()  # before there is a folder: nothing has been made that would have to be given back
            record = TerraformRunRecord(
                run_id, owner, expires, offer.to_json(), offer.region or self.settings.region, offer.provider
            )
            record = folder.create(replace(record, started=self.clock.now()))
            try:
                record = self._apply(folder, record, lock)
            except TradewindError as error:
                self._clear_after(error, folder, lock)
                raise
        return self._cluster(folder, record)

    def abandon(self, run_id: str) -> None:
        """Have Terraform stop making machines for a run; see `Provisioner.abandon`."""
        with self._guard:
            self._abandoned.add(run_id)

    def _wanted(self, run_id: str) -> None:
        with self._guard:
            self._abandoned.discard(run_id)

    def _unwanted(self, run_id: str) -> bool:
        with self._guard:
            return run_id in self._abandoned

    def _apply(self, folder: TerraformRunFolder, record: TerraformRunRecord, lock: int) -> TerraformRunRecord:
        given, offer = self.settings, Offer.from_json(record.offer)
        cloud = self._clouds.cloud(record.provider)
        if cloud is not None:
            with suppress(DeployError):  # without a note they are looked for where the credentials of then lead
                record = folder.write(replace(record, account=cloud.account()))
        self._warn(lease_warning(given, record.provider, record.expires - self.clock.now()))
        program = self._program(record.run_id)
        source = given.module or _MODULES / record.provider
        module = program.prepare([_CLOUD_INIT, source])
        program.settle(folder, module)
        declared = declared_variables(source)
        variables = self._variables(folder, record, offer, declared)
        last: DeployError | None = None
        for zone in self._zones(cloud, record, offer):
            if last is not None and record.provider == "azure":
                # It keeps a machine that there was no room for, with its interface, and Terraform does not know of it.
                self._clear(folder, record, lock)
            place = {"zone": zone} if "zone" in declared else {}
            text = json.dumps({**variables, **place, **given.variables}, indent=1)
            write_private(folder.path / "tradewind.auto.tfvars.json", text.encode())
            left = record.started + given.boot_seconds - self.clock.now()
            record = folder.write(replace(record, applying=True))
            outcome = program.run(folder, lock, "apply", max(1.0, left))
            record = folder.write(replace(record, applying=outcome.cut_off))
            try:
                machines = self._machines(outcome, record, offer)
            except CapacityError as error:
                last = error
                continue
            except OfferRefusedError as error:
                # Google does not say whether a type is in no zone, or only not in this one.
                if record.provider != "gcp":
                    raise
                last = last or error
                continue
            if cloud is not None:
                with suppress(DeployError):  # these tags are for people who read lists; ours are on the machines
                    cloud.label(record.run_id, record.region)
            return folder.write(replace(record, made=self.clock.now(), machines=machines))
        assert last is not None
        raise last

    def _warn(self, words: str) -> None:
        with self._guard:
            new, self._warned = bool(words) and not self._warned, self._warned or bool(words)
        if new:
            _log.warning("%s", words)

    def _zones(self, cloud: Cloud | None, record: TerraformRunRecord, offer: Offer) -> tuple[str, ...]:
        """List the zones to try, one after the other; a nameless one leaves the choice to the provider."""
        given = self.settings
        if given.module is None and record.provider == "aws" and given.variables.get("subnet_id"):
            return ("",)  # that of the subnet
        named = given.zones_in(record.region, record.provider)
        if not named and cloud is not None and given.module is None and "zone" not in given.variables:
            named = cloud.zones(record.region, offer.instance_type, offer.nodes)
        return named or ("",)

    def _machines(
        self, outcome: TerraformResult, record: TerraformRunRecord, offer: Offer
    ) -> tuple[Mapping[str, Any], ...]:
        """Read the machines that the module has made from its output, or raise the error that it reports."""
        if self._unwanted(record.run_id):
            raise DeployError(f"making {offer.key} was given up")
        if outcome.late:
            words = f"terraform had not made {offer.key} after {self.settings.boot_seconds:g} s"
            raise DeployError(words, hint="see boot_seconds")
        if outcome.code:
            if outcome.cut_off:
                raise DeployError(f"terraform was ended while it made {offer.key} (exit code {outcome.code})")
            raise terraform_error(outcome.diagnostics, record.provider, offer.key, applying=outcome.applying)
        listed = (outcome.outputs or {}).get("machines")
        if not isinstance(listed, list) or not all(isinstance(m, dict) and m.get("id") for m in listed):
            raise PrerequisiteError(
                "the module has no output `machines` that lists id and address of each",
                hint="see the guide on provisioner terraform",
            )
        if len(listed) != offer.nodes:
            raise CapacityError(f"{count(len(listed), 'machine')} of {offer.nodes} came up")
        if not all(machine.get("address") for machine in listed):
            raise PrerequisiteError(
                "the machines have no address", hint="public_address: true, or a subnet that is reachable from here"
            )
        return tuple(listed)

    def _variables(
        self, folder: TerraformRunFolder, record: TerraformRunRecord, offer: Offer, declared: Collection[str]
    ) -> dict[str, Any]:
        """The values of the module's variables, without those of the user's own."""
        given = self.settings
        made = {
            "run_id": record.run_id,
            "owner": record.owner,
            "expires": int(record.expires),
            "created": int(record.started),
            "price_per_hour": offer.hourly,
            "lease_seconds": max(60, int(record.expires - self.clock.now())),
            "region": record.region,
            "instance_type": offer.instance_type,
            "nodes": offer.nodes,
            "spot": offer.spot,
            "arch": offer.arch or "x86_64",
            "disk_gib": max(1, round(given.disk)),
            "image": given.image,
            **folder.public_keys(),
        }
        if record.provider == "aws" and given.endpoint:
            made["endpoint"] = given.endpoint
        made = {name: value for name, value in made.items() if name in declared}
        if "caller_cidrs" in declared and "caller_cidrs" not in given.variables:
            # Only where it is wanted: a page on the internet is asked for this machine's address.
            made["caller_cidrs"] = [given.caller_cidr or address_of_this_machine(given.address_url)]
        if given.module is None and record.account and record.provider in _ACCOUNTS:
            # Leftovers are looked for there, and a login may know it where Terraform would not.
            made[_ACCOUNTS[record.provider]] = record.account
        return made

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the state of some clusters; machines are looked at in the background. See `Provisioner.poll`."""
        return {cluster.run_id: self._where(cluster) for cluster in clusters}

    def _where(self, cluster: Cluster) -> Cluster:
        folder = TerraformRunFolder(self._runs, cluster.run_id)
        try:
            record = folder.read()
        except DeployError as error:
            return replace(cluster, state=ClusterState.UNKNOWN, reason=str(error))
        if record is None:
            # Its folder goes when its machines are gone; those of another machine's folder are nothing that we see.
            ours = str(folder.path) == cluster.data.get("folder") or cluster.state is ClusterState.GONE
            return replace(cluster, state=ClusterState.GONE if ours else ClusterState.UNKNOWN)
        return self._watched(self._cluster(folder, record), record)

    def _watched(self, cluster: Cluster, record: TerraformRunRecord) -> Cluster:
        """Failed, when the provider has taken machines back: a runner only sees that they do not answer."""
        if record.ended is not None:
            reason = "terraform has destroyed its machines; whether more is left is not known yet"
            return replace(cluster, state=ClusterState.FAILED, reason=reason, vanished=True)
        place = self._clouds.asked_for(record)
        if place is None or record.made is None or cluster.state is ClusterState.FAILED:
            return cluster
        # Otherwise a provider may know the machines by other names, or be asked in the wrong place.
        sure = self.settings.module is None and bool(record.account)
        loss = self._loss_monitor.look(*place, [machine.id for machine in cluster.machines], sure=sure)
        if not loss.lost:
            return replace(cluster, vanished=loss.vanished)
        reason = f"{record.provider} does not run {', '.join(loss.lost)} any more: taken back, or turned off"
        return replace(cluster, state=ClusterState.FAILED, reason=reason, vanished=loss.vanished)

    def find(self, owner: str | None) -> list[Cluster]:
        """All clusters of an owner, by the folders here and by tag at the providers; see `Provisioner.find`.

        Raises:
            DeployError: A provider does not answer, and may have more than is known here.
        """
        found: dict[str, Cluster] = {}
        for path in sorted(self._runs.glob("[!.]*/run.json")):
            try:
                record = TerraformRunFolder(self._runs, json.loads(path.read_bytes())["run_id"]).read()
            except FileNotFoundError:
                continue  # given back in this moment
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise DeployError(f"{path} cannot be read: {error}") from error
            if record is not None and owner in (None, record.owner):
                found[record.run_id] = self._cluster(TerraformRunFolder(self._runs, record.run_id), record)
        for each in self._clouds.orphans(owner):
            found.setdefault(each.run_id, each)
        return list(found.values())

    def destroy(self, cluster: Cluster) -> Cluster:
        """Give machines back, and wait until the provider has none with the run's tag; see `Provisioner.destroy`.

        Raises:
            TeardownError: Some are still there, or nobody knows whether they are.
        """
        folder = TerraformRunFolder(self._runs, cluster.run_id)
        self.abandon(cluster.run_id)
        try:
            folder.stop(self.settings.stop_seconds)
            with folder.locked(self.settings.destroy_seconds) as lock:
                record = folder.read()
                if record is None:
                    record = TerraformRunRecord.of(cluster)
                    self._clouds.check(folder, record)
                setup = self._cluster(folder, record).setup_seconds
                self._clear(folder, record, lock)
                folder.remove()
        finally:
            self._wanted(cluster.run_id)
        return replace(cluster, state=ClusterState.GONE, setup_seconds=max(setup, cluster.setup_seconds))

    def _clear_after(self, error: TradewindError, folder: TerraformRunFolder, lock: int) -> None:
        """Take back what a failed attempt has made; where that fails as well, the folder stays, to be found."""
        record = folder.read()
        assert record is not None
        made = bool(folder.kinds())
        try:
            self._clear(folder, record, lock)
            folder.remove()
            if made and isinstance(error, DeployError):
                error.paid_seconds = self.clock.now() - record.started
        except TradewindError as problem:
            record = folder.read() or record
            folder.write(replace(record, reason=f"{error}; and giving it back has failed: {problem}"))

    def _clear(self, folder: TerraformRunFolder, record: TerraformRunRecord, lock: int) -> None:
        """Take back all that a run has; the lock is held."""
        self._teardown.clear(folder, record, lock, self.clock.now())

    def next_change(self, clusters: Sequence[Cluster]) -> float:
        """Seconds until the next look, fewer where machines are about to answer."""
        return 0.25 if any(cluster.state is ClusterState.BOOTING for cluster in clusters) else 1.0

    def _cluster(self, folder: TerraformRunFolder, record: TerraformRunRecord) -> Cluster:
        now = self.clock.now()
        given = self.settings
        machines = self._machines_of(folder, record)
        state, reason, hopeless = ClusterState.BOOTING, record.reason, False
        if record.made is not None and record.ready is None:
            probe = self._prober.look(record.run_id, machines, given.ready)
            reason, hopeless = probe.missing, probe.failed
            if probe.ready:
                record = replace(record, ready=now)
                with suppress(FileNotFoundError):  # given back in this moment
                    folder.write(record)
        if record.ready is not None:
            state, reason = ClusterState.READY, ""
        elif record.reason or hopeless:
            state = ClusterState.FAILED
        elif record.started and now > record.started + given.boot_seconds:
            state, reason = ClusterState.FAILED, f"not ready after {given.boot_seconds:g} s: {reason or 'not made'}"
        setup = max(0.0, (now if record.ready is None else record.ready) - record.started) if record.started else 0.0
        data: dict[str, Any] = {"folder": str(folder.path), "region": record.region, "provider": record.provider}
        if record.started:
            data |= {"created": record.started, "price_per_hour": Offer.from_json(record.offer).hourly}
        return Cluster(record.run_id, state, machines, setup, reason, data, record.owner, record.expires)

    def _machines_of(self, folder: TerraformRunFolder, record: TerraformRunRecord) -> tuple[Machine, ...]:
        keys = {"identity": str(folder.identity), "known_hosts": str(folder.known_hosts)}
        return machines_from_output(record.machines, self.settings.ssh, keys)

    def _program(self, making: str = "") -> TerraformCli:
        """Terraform; for making the machines of a run, until that is given up."""
        program, seconds = self.settings.program, self.settings.stop_seconds
        return TerraformCli(program, self._base, seconds, lambda: self._unwanted(making))
