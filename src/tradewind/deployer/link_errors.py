"""What the messages of ``ssh`` mean."""

from __future__ import annotations

from tradewind.errors import CredentialsError, DeployError, UnreachableError


def ssh_error(stderr: bytes, host: str, *, opening: bool, program: str = "", code: int = 255) -> DeployError:
    """The error for what ``ssh``, or a command on the other machine, said.

    Args:
        stderr: What it said.
        host: The machine.
        opening: True when the connection was being opened.
        program: The command, if it was started.
        code: Its exit code.
    """
    text = stderr.decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("Warning:", "@"))]
    why = lines[-1] if lines else "no reason given"
    if program:
        if "No space left on device" in text or "Disk quota exceeded" in text:
            return DeployError(f"the disk of {host} is full", hint="make room there")
        return DeployError(f"{program} on {host}: {lines[0] if lines else f'exit code {code}'}")
    return _refusal(text, host, why) or _silence(text, host, why, opening=opening)


def _refusal(text: str, host: str, why: str) -> CredentialsError | None:
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return CredentialsError(
            f"{host}: its host key is not the one that is known: it has changed, or another machine answers",
            hint=f"if that is right, remove the old key: ssh-keygen -R {host}",
        )
    if "Host key verification failed" in text or "host key is known" in text:
        return CredentialsError(
            f"{host}: its host key is not known",
            hint=f"ssh {host} once by hand and compare the key, or set known_hosts",
        )
    if "Permission denied" in text or "Too many authentication failures" in text:
        return CredentialsError(f"{host} does not let us in: {why}", hint="set user and identity, or load the agent")
    if "UNPROTECTED PRIVATE KEY" in text or "invalid format" in text or "error in libcrypto" in text:
        return CredentialsError(f"the private key for {host} cannot be used: {why}", hint="chmod 600, or another key")
    if "Bad configuration option" in text or "Bad owner or permissions" in text:
        return CredentialsError(f"ssh does not like its configuration: {why}", hint="look into ~/.ssh/config")
    return None


def _silence(text: str, host: str, why: str, *, opening: bool) -> UnreachableError:
    if "Could not resolve hostname" in text:
        return UnreachableError(f"there is no host named {host}", hint="check the spelling, or the DNS")
    if "Connection refused" in text:
        return UnreachableError(f"{host} refuses connections", hint="is its SSH server running, and on this port?")
    if "timed out" in text or "Timeout" in text:
        return UnreachableError(f"{host} does not answer", hint="is it up, and does a firewall let SSH through?")
    if "No route to host" in text or "Network is unreachable" in text:
        return UnreachableError(f"there is no way to {host}: {why}")
    if not opening:
        return UnreachableError(f"the connection to {host} was lost: {why}")
    return UnreachableError(f"{host} cannot be reached: {why}")
