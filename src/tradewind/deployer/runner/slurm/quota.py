"""Finds jobs that alone ask for more than all jobs of their user, account or QOS may have together.

Such a job waits for ever, for the same reason as one that only waits for others to end (``QOSMaxCpuPerUserLimit``,
``AssocGrpMemLimit``): the reason does not distinguish them, the limits do. ``slurmctld`` shows those to everybody, with
what is used of them: ``scontrol show assoc_mgr``. It needs no accounting database to answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tradewind.deployer.runner.slurm.queue import SlurmQueue, SlurmQueueRow

SHARED = re.compile(
    r"(?!\w*(?:Minutes|Jobs|Submit|Wall))"
    r"(?:(?:QOS|Assoc)Grp\w+|(?:QOS)?Max\w+Per(?:User|Account)(?:Limit)?)"
)
"""Slurm's reasons to wait that name a limit which jobs share."""

_NAMED = re.compile(r"(?:Grp|Max)(Cpu|Mem|Node|GRES|Billing)")
_TRES = {"Cpu": "cpu", "Mem": "mem", "Node": "node", "GRES": "gres/", "Billing": "billing"}
_ASKED = re.compile(r"\b(?:Req)?TRES=(\S+)")
_FIELD = re.compile(r"\b(QOS|Account|Partition|UserId|QoS|ParentAccount|UserName)=([^\s(]*)(?:\((\d+)\))?")
_RECORD = re.compile(r"\bQOS=([^\s(]+)\(\d+\)(.*)")
_MEGABYTES = {"K": 2.0**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
_PLAIN = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_AGAIN_SECONDS = 300.0
_AT_ONCE = 3


@dataclass
class SlurmQuota:
    """Compares the requests of jobs with the limits that jobs share.

    Args:
        queue: The queue of Slurm, for its queries.
    """

    queue: SlurmQueue
    _known: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    _left: int = _AT_ONCE

    def begin(self) -> None:
        """Begin a look at all jobs: a few queries are allowed in each."""
        self._left = _AT_ONCE

    def beyond(self, row: SlurmQueueRow) -> str:
        """A sentence about what a job asks for and will never get; empty where it may get it, or that is not known.

        Args:
            row: The row of a job that waits.
        """
        if not SHARED.fullmatch(row.reason):
            return ""
        # The elements of an array ask for the same.
        key = row.name, row.reason
        known = self._known.get(key)
        if known is not None and time.monotonic() < known[0] + _AGAIN_SECONDS:
            return known[1]
        if self._left <= 0:
            return known[1] if known else ""
        self._left -= 1
        found = self._find(row)
        self._known[key] = time.monotonic(), found
        return found

    def _find(self, row: SlurmQueueRow) -> str:
        text = self.queue.heard("scontrol show job", "scontrol", "--oneliner", "show", "job", row.job) or ""
        asked, named = _ASKED.search(text), _NAMED.search(row.reason)
        about = {key: value for key, value, _ in _FIELD.findall(text)}
        if asked is None or named is None or "QOS" not in about:
            return ""
        wanted = _amounts(asked[1].split(","))
        wanted = {name: amount for name, amount in wanted.items() if name.startswith(_TRES[named[1]])}
        if row.reason.startswith("Assoc"):
            for who, limits in self._of_accounts(about):
                if words := _words(wanted, [limits], f"account {who} allows {{limit}} for all its jobs together"):
                    return words
            return ""
        user = next((number for key, _, number in _FIELD.findall(text) if key == "UserId"), "")
        kind, whom = _kind(row.reason, user, about.get("Account", ""))
        return _words(wanted, self._of_qos(about, kind), f"QOS {about['QOS']} allows {{limit}} for all jobs {whom}")

    def _of_qos(self, about: Mapping[str, str], kind: re.Pattern[str]) -> list[Mapping[str, float]]:
        """The limits of a job's QOS, and of its partition's, which goes before it."""
        partition = self.queue.heard("scontrol show", "scontrol", "--oneliner", "show", "partition", about["Partition"])
        names = {about["QOS"], *(value for key, value, _ in _FIELD.findall(partition or "") if key == "QoS")} - {"N/A"}
        words = ("--oneliner", "show", "assoc_mgr", "flags=qos", f"qos={','.join(sorted(names))}")
        text = self.queue.heard("scontrol show", "scontrol", *words) or ""
        records = [match[2] for line in text.splitlines() if (match := _RECORD.search(line)) and match[1] in names]
        found = [kind.search(record) for record in records]
        return [_amounts(part for part in match[1].split(",")) for match in found if match is not None]

    def _of_accounts(self, about: Mapping[str, str]) -> list[tuple[str, Mapping[str, float]]]:
        """The limits of a job's association, of its account and of those above."""
        text = self.queue.heard("scontrol show", "scontrol", "--oneliner", "show", "assoc_mgr", "flags=assoc") or ""
        records: dict[tuple[str, str], tuple[str, Mapping[str, float]]] = {}
        for line in text.splitlines():
            facts = {key: value for key, value, _ in _FIELD.findall(line)}
            limits = re.search(r"\bGrpTRES=(\S*)", line)
            if "Account" in facts and limits is not None:
                key = facts["Account"], facts.get("UserName", "")
                records[key] = facts.get("ParentAccount", ""), _amounts(limits[1].split(","))
        found = []
        account, user = about.get("Account", ""), about.get("UserId", "")
        while (record := records.get((account, user))) is not None:
            found.append((account, record[1]))
            account, user = (account, "") if user else (record[0], "")
        return found


def _kind(reason: str, user: str, account: str) -> tuple[re.Pattern[str], str]:
    """The pattern of the limits of a QOS that a reason names, and the words for those who share them."""
    if "PerUser" in reason:
        return re.compile(rf"User Limits=.*?\b{user}={{[^}}]*\bMaxTRESPU=([^\s}}]*)"), "of a user together"
    if "PerAccount" in reason:
        named = rf"Account Limits=.*?\b{re.escape(account)}={{[^}}]*\bMaxTRESPA=([^\s}}]*)"
        return re.compile(named), "of an account together"
    return re.compile(r"\bGrpTRES=(\S*)"), "together"


def _words(wanted: Mapping[str, float], limits: Iterable[Mapping[str, float]], words: str) -> str:
    """A sentence about the first amount that is above all its limits; empty without one."""
    for name, amount in wanted.items():
        given = [each[name] for each in limits if name in each]
        if given and max(given) < amount:
            unit = " MiB" if name == "mem" else ""
            limit = f"{max(given):g}{unit} ({name})"
            return f"{words.format(limit=limit)}, and this one asks for {amount:g}{unit}"
    return ""


def _amounts(parts: Iterable[str]) -> dict[str, float]:
    """Amounts by name, of ``cpu=4`` as jobs have them and of ``cpu=2(0)`` as limits are; memory in MiB."""
    found = {}
    for part in parts:
        name, _, text = part.partition("=")
        number = re.match(r"([\d.]+)([KMGTP]?)", text)
        if number is not None:
            factor = (_MEGABYTES if name == "mem" else _PLAIN).get(number[2], 1.0)
            found[name] = float(number[1]) * factor
    return found
