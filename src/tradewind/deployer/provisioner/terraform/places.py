"""Where the things of a run may be: which provider is asked, and within which account, subscription or project."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tradewind.deployer.provisioner.base import Cluster
from tradewind.deployer.provisioner.terraform.aws import AmazonCloud
from tradewind.deployer.provisioner.terraform.azure import AzureCloud
from tradewind.deployer.provisioner.terraform.cloud import Cloud, orphan_cluster
from tradewind.deployer.provisioner.terraform.gcp import GoogleCloud
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder, TerraformRunRecord
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.errors import TeardownError

_LEAST_PATIENCE = 60.0


class ProviderClouds:
    """The providers of some settings; may be used by several threads.

    Args:
        settings: Of the provisioner.
    """

    def __init__(self, settings: TerraformSettings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._asked: dict[tuple[str, str], Cloud] = {}

    def cloud(self, provider: str) -> Cloud | None:
        """Who can be asked for what a run of a provider has, or None where nobody is."""
        wanted = self._settings.sweep and provider in self._settings.providers
        return self._of(provider) if wanted else None

    def orphans(self, owner: str | None) -> Iterator[Cluster]:
        """What the providers have of an owner, or of all."""
        for provider in self._settings.providers if self._settings.sweep else ():
            for each in self._of(provider).find(owner):
                yield orphan_cluster(each, provider, owner)

    def of_run(self, record: TerraformRunRecord) -> list[tuple[Cloud, str]]:
        """Where things of a run may be: its own region, or all of our providers where that is not known.

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
        """Who can be asked whether the machines of a run are still there, and in which region; None where nobody is."""
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
