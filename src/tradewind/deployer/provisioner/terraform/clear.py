"""Takes back all that a run has, until nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tradewind.deployer.provisioner.terraform.cli import TerraformCli
from tradewind.deployer.provisioner.terraform.cloud import Cloud
from tradewind.deployer.provisioner.terraform.places import ProviderClouds
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder, TerraformRunRecord
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.errors import DeployError, MissingProgramError, TeardownError, TradewindError

_POLL_SECONDS = 2.0


class Teardown:
    """Takes back what runs have made: by tag at the provider, and with Terraform what only its state knows.

    Args:
        settings: Of the provisioner.
        places: Its providers.
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
        """Who still has something of a run, and why that could not be told everywhere."""
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
