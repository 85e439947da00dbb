"""Typed errors for container images that cannot be used, for all runners that use them."""

from __future__ import annotations

from tradewind.deployer.runner.architectures import architecture_error, wrong_architecture
from tradewind.deployer.runner.exit_reasons import fault_of
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
)
from tradewind.problem import Fault

NETWORK_WORDS = (
    "no such host",
    "i/o timeout",
    "connection refused",
    "network is unreachable",
    "tls handshake",
    "client.timeout exceeded",
    "server misbehaving",
    "connection reset",
    "unexpected eof",
)
"""Words of a registry that cannot be reached, in small letters."""


def image_error(said: str, image: str) -> DeployError | None:
    """The typed error for what an engine or a registry says of an image; None where the words are of something else.

    Args:
        said: The words.
        image: The image.
    """
    low = said.lower()
    if "toomanyrequests" in low or "rate limit" in low:
        return CapacityError(
            f"the registry of the image {image} lets nobody pull so often", hint="docker login, or wait"
        )
    if "invalid reference format" in low or "invalid repository name" in low:
        return ImageError(f"{image!r} is not the name of an image", hint="write registry/name:tag in lower case")
    if "pull access denied" in low or "requested access to the resource is denied" in low:
        return ImageError(
            f"there is no image {image}, or its registry wants to know who asks",
            hint="check the name, or docker login",
        )
    if "unauthorized" in low or "authentication required" in low or "no basic auth credentials" in low:
        return CredentialsError(f"the registry of the image {image} does not let us in: {said}", hint="docker login")
    missing = ("no such image", "manifest unknown", "not found: manifest", "image not known", "name unknown")
    if any(words in low for words in missing) or ("manifest for" in low and "not found" in low):
        return ImageError(
            f"there is no image {image}", hint="check its name and tag, docker pull it, or set pull: missing"
        )
    if "no matching manifest" in low:
        return architecture_error(f"{wrong_architecture(f'the image {image}', '')}: {said}")
    return None


def image_fault(said: str, image: str) -> Fault:
    """The cause of a run whose image its engine has given up, by what the engine says.

    Every run of the job has this image: unless the registry did not answer, or the machine is of another kind than the
    image, none would begin.

    Args:
        said: The words.
        image: The image.
    """
    if any(words in said.lower() for words in NETWORK_WORDS):
        return Fault.INFRASTRUCTURE
    return fault_of(image_error(said, image) or ImageError(said))
