"""The server's shared context: settings, database, and the services behind REST, XML-RPC and the pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind import plugins
from tradewind.service.accounts.account_service import AccountService
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.user_administration import UserAdministration
from tradewind.service.applications.application_service import ApplicationService
from tradewind.service.applications.backends import BackendService
from tradewind.service.applications.proposals import ProposalService
from tradewind.service.clusters import ClusterService
from tradewind.service.http.event_hub import EventHub
from tradewind.service.machines import MachineService
from tradewind.service.notifications.notification_service import NotificationService
from tradewind.service.offers import OfferService
from tradewind.service.operations.process_registry import ProcessRegistry
from tradewind.service.requests.request_planner import PlannerDependencies
from tradewind.service.requests.request_service import RequestService
from tradewind.service.results.result_storage import ResultStorageService
from tradewind.service.results.share_links import ShareLinkService
from tradewind.service.secret_vault import SecretVault
from tradewind.service.settings import ServiceSettings
from tradewind.service.studies import StudyService
from tradewind.service.workflows import WorkflowChartService
from tradewind.store.clusters.cluster_store import ClusterStore
from tradewind.store.sql.database import Database

if TYPE_CHECKING:
    from tradewind.store.base import Store


@dataclass(frozen=True)
class Context:
    """The shared context of a server; REST, XML-RPC and the pages call the same services of it.

    Attributes:
        settings: The server's settings.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.
        database: The open database.
        store: The studies in it.
        cluster: Tenants and clusters.
        accounts: Users, tokens and sessions.
        users: Administration of users and tenants.
        audit: The audit log.
        requests: Requests of users for runs and searches.
        backends: Backends that jobs run on.
        applications: Applications, with their forms.
        proposals: Proposals of configurations.
        studies: Views of studies.
        workflows: Plans and runs of workflows among the files of requests, and runs in the store.
        clusters: Views of shared clusters.
        machines: Running machines and jobs, with their cost.
        offers: Offers of the catalogues.
        presence: Registry of the servers and workers that are alive.
        streams: Event streams that are open.
        links: Share links to results.
        sealer: Encrypted secrets of users.
        notices: Notices to users, by e-mail and webhook.
        results: Locations that results are uploaded to.
    """

    settings: ServiceSettings
    url: str
    data_folder: Path
    database: Database
    store: Store
    cluster: ClusterStore
    accounts: AccountService
    users: UserAdministration
    audit: AuditLog
    requests: RequestService
    backends: BackendService
    applications: ApplicationService
    proposals: ProposalService
    studies: StudyService
    workflows: WorkflowChartService
    clusters: ClusterService
    machines: MachineService
    offers: OfferService
    presence: ProcessRegistry
    streams: EventHub
    links: ShareLinkService
    sealer: SecretVault
    notices: NotificationService
    results: ResultStorageService

    def close(self) -> None:
        """Close the connections to the database."""
        self.streams.close()
        self.store.close()
        self.cluster.close()
        self.database.close()


def open_context(settings: ServiceSettings, url: str, data_folder: Path) -> Context:
    """Open the database, and build the services on it.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.

    Raises:
        StoreError: The database cannot be opened.
    """
    database = Database(url, busy_timeout=30.0)
    cluster = ClusterStore(url)
    audit = AuditLog(database, settings.audit_days)
    accounts = AccountService(database, settings, audit)
    store: Store = plugins.create("store", "sql", {}, url=url)
    backends = BackendService(database, data_folder)
    applications = ApplicationService(database, settings, data_folder, backends)
    sealer = SecretVault(database, settings, data_folder)
    sealer.start()
    proposals = ProposalService(applications, backends, settings, data_folder)
    results = ResultStorageService(database, settings, sealer, audit, data_folder)
    dependencies = PlannerDependencies(settings, applications, backends, proposals, results, cluster, data_folder)
    requests = RequestService(database, store, dependencies)
    return Context(
        settings=settings,
        url=url,
        data_folder=data_folder,
        database=database,
        store=store,
        cluster=cluster,
        accounts=accounts,
        users=UserAdministration(accounts, cluster, audit),
        audit=audit,
        requests=requests,
        backends=backends,
        applications=applications,
        proposals=proposals,
        studies=StudyService(database, store),
        workflows=WorkflowChartService(requests, store),
        clusters=ClusterService(cluster),
        machines=MachineService(database, store, data_folder),
        offers=OfferService(data_folder),
        presence=ProcessRegistry(database),
        streams=EventHub(database, settings),
        links=ShareLinkService(database, settings, requests, audit),
        sealer=sealer,
        notices=NotificationService(database, settings, requests, applications, sealer, audit),
        results=results,
    )
