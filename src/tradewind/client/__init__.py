"""The Python client of the service: `Client` submits requests, waits for them, and reads what they left.

It raises the same errors as the server had, and needs httpx2 only (``pip install 'tradewind[client]'``).
"""

from __future__ import annotations

from tradewind.client.client import Client
from tradewind.client.models import (
    ApplicationInfo,
    CandidateInfo,
    EventInfo,
    FileInfo,
    FormFieldInfo,
    FormInfo,
    LogPartInfo,
    ProposalInfo,
    RequestInfo,
    StudyInfo,
    UploadInfo,
    UserInfo,
)

__all__ = [
    "ApplicationInfo",
    "CandidateInfo",
    "Client",
    "EventInfo",
    "FileInfo",
    "FormFieldInfo",
    "FormInfo",
    "LogPartInfo",
    "ProposalInfo",
    "RequestInfo",
    "StudyInfo",
    "UploadInfo",
    "UserInfo",
]
