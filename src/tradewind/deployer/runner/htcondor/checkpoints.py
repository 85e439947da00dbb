"""Checkpoints of jobs whose files HTCondor transfers: the job itself sends them here, by condor_chirp."""

from __future__ import annotations

from pathlib import Path

from tradewind.deployer.bundle import unpack
from tradewind.deployer.checkpoints import ATTEMPTS, CHANGES, FOLDER, CheckpointLook, CheckpointStore
from tradewind.errors import DeployError
from tradewind.problem import CheckpointPlan

NO_CHECKPOINTS = "condor_chirp, by which a job sends them, is on the machine and not in the job's image"

SAID = "checkpoint.said"
"""The file of the exchange folder that says what was sent last."""

_TAR = "checkpoint-{}.tar"
_LONGEST, _LOOKS = 60, 4

SENDER = rf"""
mkdir -p "$folder/{FOLDER}"
if [ -f "$here/checkpoint.tar" ]; then tar -xf "$here/checkpoint.tar" -C "$folder/{FOLDER}" || exit 126; fi
chirp=$(command -v condor_chirp) || chirp=$(condor_config_val LIBEXEC 2> /dev/null)/condor_chirp
[ -x "$chirp" ] || chirp=/usr/libexec/condor/condor_chirp
[ -x "$chirp" ] || {{ echo "fault=chirp" > "$here/result"; exit 126; }}
listed() {{ (cd "$folder" && find {FOLDER} -type f -exec stat -c '%Y %i %s %n' {{}} + | sort); }}
send() {{ # sends what is new, as it is at one moment; two archives take turns, so that one is whole at any time
  now=$(listed)
  [ -n "$now" ] && [ "$now" != "$(cat "$here/sent.list" 2> /dev/null)" ] || return 0
  rm -rf "$folder/{FOLDER}.copy"
  cp -Rp "$folder/{FOLDER}" "$folder/{FOLDER}.copy" 2> /dev/null && [ "$now" = "$(listed)" ] || return 0
  number=$(( $(cat "$here/sent.number" 2> /dev/null || echo 0) + 1 ))
  tar -cf "$here/sent.tar" -C "$folder/{FOLDER}.copy" . || return 1
  newest=$(printf '%s\n' "$now" | cut -d ' ' -f 1 | sort -n | tail -n 1)
  size=$(wc -c < "$here/sent.tar") age=$(( $(date +%s) - newest )) sum=$(printf '%s' "$now" | cksum)
  printf 'number=%s\nsize=%s\nage=%s\nsum=%s\nwhole=1\n' "$number" "$size" "$age" "$sum" > "$here/sent.said"
  "$chirp" put "$here/sent.tar" "checkpoint-$(( number % 2 )).tar" || return 1
  "$chirp" put "$here/sent.said" {SAID} || return 1
  echo "$number" > "$here/sent.number"
  printf '%s\n' "$now" > "$here/sent.list"
}}"""
"""Shell: unpacks the checkpoint that the job begins at, and how a new one is sent."""

SENT = """\
kill "$sender" 2> /dev/null; wait "$sender" 2> /dev/null
send > /dev/null 2>&1 || echo unsent=1 >> "$here/result"
"""
"""Shell: sends what the program has left, also in the moment that it was given when it lost its machine."""


def sending(plan: CheckpointPlan) -> str:
    """Shell that looks for something new while the program runs, often at first.

    Args:
        plan: How often the program writes a checkpoint.
    """
    longest = max(1, min(_LONGEST, int(plan.every / _LOOKS)))
    return (
        f"(nap=1; while sleep $nap; do send; nap=$((nap * 2)); [ $nap -le {longest} ] || nap={longest}; done)"
        " > /dev/null 2>&1 & sender=$!"
    )


def put_checkpoint(plan: CheckpointPlan, archive: Path) -> None:
    """Pack the latest checkpoint for the job, where there is one.

    Args:
        plan: Where the checkpoints are kept.
        archive: The archive that is made.
    """
    archive.unlink(missing_ok=True)
    latest = CheckpointStore(plan.folder).latest()
    if latest is not None:
        with archive.open("wb") as file:
            latest.pack(file)


def look_at_checkpoint(place: Path) -> CheckpointLook:
    """Look at what a job has sent last.

    Args:
        place: The exchange folder of the run.
    """
    said = _said(place)
    if said is None:
        return CheckpointLook()
    fields, sent = said
    return CheckpointLook.by_seconds(f"{fields['sum']} {fields['size']}".encode(), int(fields["age"]), sent)


def copy_checkpoint(place: Path, folder: Path, limit_bytes: int) -> CheckpointLook:
    """Unpack what a job has sent last.

    Args:
        place: The exchange folder of the run.
        folder: The folder that is made for it.
        limit_bytes: The most bytes that the files may have.

    Returns:
        What was copied.

    Raises:
        DeployError: It is damaged, hostile or too large, or others come all the time.
    """
    for _ in range(ATTEMPTS):
        said = _said(place)
        if said is None:
            return CheckpointLook()
        fields, _ = said
        archive = place / _TAR.format(int(fields["number"]) % 2)
        try:
            with archive.open("rb") as file:
                if archive.stat().st_size == int(fields["size"]):
                    unpack(file, folder, limit_bytes=limit_bytes, lenient=True)
                    if _said(place) == said:
                        return look_at_checkpoint(place)
        except FileNotFoundError:
            continue
    raise DeployError(CHANGES)


def _said(place: Path) -> tuple[dict[str, str], float] | None:
    """The fields of what was sent last, and when it came, by this machine's clock; None where nothing has come."""
    try:
        text = (place / SAID).read_text(encoding="utf-8", errors="replace")
        came = (place / SAID).stat().st_mtime
    except OSError:
        return None
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    whole = fields.get("whole") == "1" and all(fields.get(name, "").isdigit() for name in ("number", "size"))
    return (fields, came) if whole and fields.get("age", "").lstrip("-").isdigit() and "sum" in fields else None
