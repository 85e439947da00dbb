"""Storage that inputs come from and results go to: object stores, SFTP and WebDAV servers, folders of this machine."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.deployer.storage.base import LocalStorage, StorageAccess, StorageAddress, StorageLocation
from tradewind.errors import MissingProgramError
from tradewind.utils.dependencies import install_command

__all__ = ["open_storage"]


def open_storage(text: str, given: Mapping[str, Mapping[str, str]]) -> StorageLocation:
    """Make the storage of an address; nothing is connected yet.

    Args:
        text: The address.
        given: Settings of `StorageAccess` by address; they count for all addresses below it.

    Raises:
        DeployError: The address is not understood.
        MissingProgramError: A package or program for it is not installed.
    """
    address = StorageAddress.parse(text)
    access = StorageAccess.of(address, given)
    if address.scheme == "file":
        return LocalStorage(address, access)
    if address.scheme == "sftp":
        from tradewind.deployer.storage.sftp import SftpStorage

        return SftpStorage(address, access)
    try:
        if address.scheme == "s3":
            import botocore.session  # noqa: F401  (credentials and region are read with it)
        if address.scheme in ("s3", "gs"):
            from tradewind.deployer.storage.object_store import ObjectStorage

            return ObjectStorage(address, access)
        from tradewind.deployer.storage.webdav import WebdavStorage

        return WebdavStorage(address, access)
    except ImportError as error:
        raise MissingProgramError(
            f"{address.scheme}:// needs the package {error.name}", hint=install_command("files")
        ) from error
