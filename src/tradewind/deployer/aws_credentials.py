"""Finds Amazon's credentials and region where all its programs look for them, with its package botocore.

botocore is an optional package and takes a second to import: only functions import it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from tradewind import plugins
from tradewind.errors import CredentialsError, DeployError, MissingProgramError, UnreachableError
from tradewind.utils.dependencies import install_command

_FIRST_REGION = "us-east-1"


def require_botocore() -> None:
    """See that botocore is installed; it is not imported.

    Raises:
        MissingProgramError: It is not.
    """
    if not plugins.installed("botocore"):
        hint = install_command("terraform")
        raise MissingProgramError("the package botocore is not installed, which asks Amazon", hint=hint)


def aws_session() -> Any:
    """A new session of botocore: it reads environment, profiles and the machine's role as they are now.

    Raises:
        MissingProgramError: botocore is not installed.
    """
    require_botocore()
    from botocore.session import Session

    session = Session()
    session.register_component("data_loader", _loader())
    return session


@functools.cache
def _loader() -> Any:
    """The descriptions of Amazon's services, which all sessions share: that of EC2 takes a second to read."""
    from botocore.loaders import create_loader

    return create_loader(os.environ.get("AWS_DATA_PATH"))


def default_region() -> str:
    """The region that the environment or the user's profile names, else the first that there was.

    Raises:
        CredentialsError: The file with the profiles cannot be read.
        MissingProgramError: botocore, which reads it, is not installed.
    """
    # Terraform reads the first name, botocore only the second.
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    session = aws_session()
    from botocore.exceptions import BotoCoreError, ProfileNotFound

    try:
        return session.get_config_variable("region") or _FIRST_REGION
    except ProfileNotFound:
        return _FIRST_REGION
    except BotoCoreError as error:
        raise credentials_error(error) from error


def find_aws_credentials(session: Any = None) -> Any:
    """The credentials that Terraform would take too: environment, profile, single sign-on, role, the machine's role.

    The machine's role is asked for at an address that does not answer elsewhere: botocore waits for it for a second or
    two, and not at all with AWS_EC2_METADATA_DISABLED.

    Args:
        session: A session of botocore; a new one by default.

    Returns:
        ``access_key``, ``secret_key`` and ``token`` (None without), as they are at this moment.

    Raises:
        CredentialsError: There are none.
        UnreachableError: The service that gives them out does not answer.
        MissingProgramError: botocore is not installed.
    """
    session = session or aws_session()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        _refuse_codes(session)
        found = session.get_credentials()
        if found is not None:
            return found.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        raise credentials_error(error) from error
    raise CredentialsError("there are no credentials for aws", hint=_HINT)


_HINT = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def _refuse_codes(session: Any) -> None:
    """Refuse a profile whose role takes a code of the user's device: botocore would wait for it at the terminal."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return
    profiles = session.full_config.get("profiles", {})
    name, seen = session.get_config_variable("profile") or "default", set[str]()
    while name in profiles and name not in seen:
        seen.add(name)
        if {"role_arn", "mfa_serial"} <= profiles[name].keys():
            raise CredentialsError(
                f"there are no credentials for aws: the profile {name} asks for a code at each use",
                hint='write eval "$(aws configure export-credentials --format env)" first, which asks for it once',
            )
        name = profiles[name].get("source_profile", "")


def credentials_error(error: Exception) -> DeployError:
    """The typed error for what botocore says when it looks for credentials."""
    from botocore.exceptions import ConnectionError, HTTPClientError

    words = " ".join(str(error).split())
    if isinstance(error, ConnectionError | HTTPClientError):
        return UnreachableError(f"aws does not give us credentials: {words}")
    return CredentialsError(f"there are no credentials for aws: {words}", hint=_HINT)
