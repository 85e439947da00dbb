"""What the parts of a server share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind import plugins
from tradewind.service.accounts.audit import Audit
from tradewind.service.accounts.functions import Accounts
from tradewind.service.accounts.users import Users
from tradewind.service.applications.functions import Applications
from tradewind.service.backends import Backends
from tradewind.service.clusters import Clusters
from tradewind.service.links import Links
from tradewind.service.machines import Machines
from tradewind.service.notices.functions import Notices
from tradewind.service.offers import Offers
from tradewind.service.presence import Presence
from tradewind.service.proposals import Proposals
from tradewind.service.requests.functions import Requests
from tradewind.service.requests.planning import Room
from tradewind.service.results.functions import Results
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.streams.hub import Hub
from tradewind.service.studies import Studies
from tradewind.service.workflows import Workflows
from tradewind.store.cluster import ClusterStore
from tradewind.store.database import Database

if TYPE_CHECKING:
    from tradewind.store.base import Store


@dataclass(frozen=True)
class Context:
    """What the parts of a server share; REST, XML-RPC and the pages call the same functions of it.

    Attributes:
        settings: The server's settings.
        url: Address of the store.
        data_folder: For runs, runners and refreshed prices.
        database: The open database.
        store: Studies.
        cluster: Tenants and clusters.
        accounts: Users, tokens and sessions.
        users: What administrators do with users and tenants.
        audit: The audit log.
        requests: Requests: what users want run.
        backends: Where jobs run.
        applications: Applications, with their forms.
        proposals: Which configuration to use.
        studies: What people see of studies.
        workflows: Plans and runs of workflows among the files of requests.
        clusters: What people see of shared clusters.
        machines: What is running and costs money.
        offers: What the catalogues sell.
        presence: Which servers and workers are alive.
        streams: Event streams that are open.
        links: Links to results.
        sealer: Keeps secrets of users.
        notices: What users are told, by e-mail and webhook.
        results: Where results go.
    """

    settings: ServiceSettings
    url: str
    data_folder: Path
    database: Database
    store: Store
    cluster: ClusterStore
    accounts: Accounts
    users: Users
    audit: Audit
    requests: Requests
    backends: Backends
    applications: Applications
    proposals: Proposals
    studies: Studies
    workflows: Workflows
    clusters: Clusters
    machines: Machines
    offers: Offers
    presence: Presence
    streams: Hub
    links: Links
    sealer: Sealer
    notices: Notices
    results: Results

    def close(self) -> None:
        """Give back connections."""
        self.streams.close()
        self.store.close()
        self.cluster.close()
        self.database.close()


def open_context(settings: ServiceSettings, url: str, data_folder: Path) -> Context:
    """Open the database, and put the functions together.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: For runs, runners and refreshed prices.

    Raises:
        StoreError: The database cannot be opened.
    """
    database = Database(url, busy_timeout=30.0)
    cluster = ClusterStore(url)
    audit = Audit(database, settings.audit_days)
    accounts = Accounts(database, settings, audit)
    store: Store = plugins.create("store", "sql", {}, url=url)
    backends = Backends(database, data_folder)
    applications = Applications(database, settings, data_folder, backends)
    sealer = Sealer(database, settings, data_folder)
    sealer.start()
    proposals = Proposals(applications, backends, settings, data_folder)
    results = Results(database, settings, sealer, audit, data_folder)
    room = Room(settings, applications, backends, proposals, results, cluster, data_folder)
    requests = Requests(database, store, room)
    return Context(
        settings=settings,
        url=url,
        data_folder=data_folder,
        database=database,
        store=store,
        cluster=cluster,
        accounts=accounts,
        users=Users(accounts, cluster, audit),
        audit=audit,
        requests=requests,
        backends=backends,
        applications=applications,
        proposals=proposals,
        studies=Studies(database, store),
        workflows=Workflows(requests),
        clusters=Clusters(cluster),
        machines=Machines(database, store, data_folder),
        offers=Offers(data_folder),
        presence=Presence(database),
        streams=Hub(database, settings),
        links=Links(database, settings, requests, audit),
        sealer=sealer,
        notices=Notices(database, settings, requests, sealer, audit),
        results=results,
    )
