"""Style sheets, scripts and pictures: served from memory, at addresses that change with their content."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tradewind.errors import NotFoundError
from tradewind.reporting.charts import ASSETS
from tradewind.service.http.responses import accepts_gzip

FOLDER = Path(__file__).parent / "static"
"""What is in it is served below /static; all of ``css/`` comes as one ``app.css``, in the order of the names."""

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*["'](\.[^"']+)["']""", re.MULTILINE)
_FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class StaticAsset:
    """A file as it is sent.

    Attributes:
        body: Content of the file.
        packed: The same in gzip.
        kind: Content type.
    """

    body: bytes
    packed: bytes
    kind: str


class StaticAssets:
    """All files of a folder under one digest: scripts import each other by relative names, which then change together.

    Args:
        folder: Folder of the files.
        charts: Folder of the scripts and styles of charts, which reports have too: ``js/charts/`` of pages.
    """

    def __init__(self, folder: Path, charts: Path = ASSETS) -> None:
        bodies: dict[str, bytes] = {}
        names = {path: path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))}
        names |= {
            path: f"{'css' if path.suffix == '.css' else 'js/charts'}/{path.name}" for path in sorted(charts.iterdir())
        }
        for path, name in names.items():
            if not path.is_file() or path.name.startswith((".", "_")):
                continue
            if name.startswith("css/"):
                bodies["app.css"] = bodies.get("app.css", b"") + path.read_bytes()
            else:
                bodies[name] = path.read_bytes()
        digest = hashlib.sha256()
        for name, body in bodies.items():
            digest.update(f"{name} {len(body)} ".encode() + body)
        self.digest = digest.hexdigest()[:16]
        self._files = {
            name: StaticAsset(body, gzip.compress(body, 9, mtime=0), _kind(name)) for name, body in bodies.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(self._files)

    def url(self, name: str) -> str:
        """Return the address of a file, which no browser needs to ask for twice.

        Raises:
            KeyError: There is no such file: a template names it wrongly.
        """
        if name not in self._files:
            raise KeyError(f"there is no {name} in {FOLDER}")
        return f"/static/{self.digest}/{name}"

    def modules(self, name: str) -> list[str]:
        """Return the addresses of all modules that a script imports: a page loads them at once, not in turns."""
        found: dict[str, None] = {}
        waiting = [name]
        while waiting:
            here = waiting.pop(0)
            for relative in _IMPORT.findall(self._files[here].body.decode()):
                there = posixpath.normpath(posixpath.join(posixpath.dirname(here), relative))
                if there not in found and there != name:
                    found[there] = None
                    waiting.append(there)
        return [self.url(module) for module in found]

    def get(self, name: str) -> StaticAsset:
        """Return one file.

        Raises:
            NotFoundError: There is none.
        """
        if name not in self._files:
            raise NotFoundError("there is no such file")
        return self._files[name]


def _kind(name: str) -> str:
    suffix = Path(name).suffix
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


@cache
def assets() -> StaticAssets:
    """Return the files of this program, read once."""
    return StaticAssets(FOLDER)


@router.get("/static/{digest}/{name:path}")
def static(request: Request, digest: str, name: str) -> Response:
    """Serve one file; a page from before an update still finds what it asks for, but may not keep it."""
    asset = assets().get(name)
    headers = {"Cache-Control": _FOREVER if digest == assets().digest else "no-cache", "Vary": "Accept-Encoding"}
    if accepts_gzip(request):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.kind)
    return Response(asset.body, headers=headers, media_type=asset.kind)


@router.get("/favicon.ico")
def favicon() -> Response:
    """Serve the icon that browsers ask for by themselves."""
    return Response(
        assets().get("icon.svg").body, headers={"Cache-Control": "max-age=86400"}, media_type=_TYPES[".svg"]
    )
