"""Finds Amazon's credentials where all its programs look for them, without Amazon's packages for Python."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.errors import CredentialsError
from tradewind.utils.paths import expand

_METADATA = "http://169.254.169.254/latest"


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """What requests are signed with."""

    access: str
    secret: str
    token: str = ""


def default_region() -> str:
    """The region that the environment or the user's profile names, else the first that there was."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or _profile().get("region", "us-east-1")


def find_aws_credentials() -> AwsCredentials:
    """The credentials that Terraform would take too: environment, profile, ``aws`` program, the machine's role.

    Raises:
        CredentialsError: There are none.
    """
    environ = os.environ
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        token = environ.get("AWS_SESSION_TOKEN", "")
        return AwsCredentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
    profile = _profile()
    if "aws_access_key_id" in profile and "aws_secret_access_key" in profile and "role_arn" not in profile:
        token = profile.get("aws_session_token", "")
        return AwsCredentials(profile["aws_access_key_id"], profile["aws_secret_access_key"], token)
    if "credential_process" in profile:
        found = _from_program(shlex.split(profile["credential_process"]))
    elif shutil.which("aws"):
        # Roles and single sign-on are its business.
        found = _from_program(["aws", "configure", "export-credentials", "--format", "process"])
    else:
        found = None
    found = found or _from_machine()
    if found is None:
        raise CredentialsError(
            "there are no credentials for aws",
            hint="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; roles and single sign-on also need "
            "the aws program",
        )
    return found


def _profile() -> Mapping[str, str]:
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    merged: dict[str, str] = {}
    places = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    for variable, usual in places:
        parser = configparser.ConfigParser(interpolation=None, default_section="-")
        try:
            parser.read(expand(os.environ.get(variable) or usual), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise CredentialsError(f"{usual} cannot be read: {type(error).__name__}") from None
        for section in (name, f"profile {name}"):
            if parser.has_section(section):
                merged.update(parser[section])
    return merged


def _from_program(argv: list[str]) -> AwsCredentials | None:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        answer = json.loads(done.stdout)
        return AwsCredentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer.get("SessionToken", ""))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None


def _from_machine() -> AwsCredentials | None:
    """The role of the machine that this runs on."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None

    def ask(path: str, method: str, name: str, value: str) -> str:
        headers = {f"X-aws-ec2-metadata-{name}": value}
        request = urllib.request.Request(f"{_METADATA}/{path}", method=method, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=1) as answer:  # noqa: S310
            text: str = answer.read().decode()
            return text

    try:
        session = ask("api/token", "PUT", "token-ttl-seconds", "60")
        place = "meta-data/iam/security-credentials/"
        role = ask(place, "GET", "token", session).split()[0]
        answer = json.loads(ask(place + role, "GET", "token", session))
        return AwsCredentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["Token"])
    except (OSError, ValueError, KeyError, IndexError):
        return None
