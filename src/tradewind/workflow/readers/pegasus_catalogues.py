"""Reads the catalogues of a Pegasus workflow: within it, beside it, and those that its properties name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tradewind.errors import WorkflowError
from tradewind.utils.yaml_lines import YamlMapping, YamlSequence
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.pegasus4_catalogues import ListedProgram, parse_files, parse_programs, parse_sites
from tradewind.workflow.readers.profiles import METADATA, ProfileLevel, file_size, requirements_of
from tradewind.workflow.readers.yaml_lines import YamlValueReader, read_yaml_lines

ProgramKey = tuple[str, str, str]
"""Namespace, name and version of a program."""

PROPERTIES = "pegasus.properties"
_FILES = {
    "transformations": ("transformations.yml", "tc.txt", "tc.data", "tc.dat"),
    "replicas": ("replicas.yml", "rc.txt", "rc.data", "rc.dat"),
    "sites": ("sites.yml", "sites.xml"),
}
"""The catalogues beside a workflow, by the key that each has in YAML: that of Pegasus 5, or else one of Pegasus 4."""

_NAMED = {
    "transformations": "pegasus.catalog.transformation.file",
    "replicas": "pegasus.catalog.replica.file",
    "sites": "pegasus.catalog.site.file",
}
_SPACES = ("pegasus", "condor", "globus", "slurm", "dagman")
_PROPERTY = re.compile(r"\s*([^\s=:]+)\s*[=:]?\s*(.*?)\s*")
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ProgramEntry:
    """A program as one catalogue has it.

    Attributes:
        path: Path of the program, on the first site that has one.
        levels: Profiles of that site's entry, then of the program.
        site: Name of that site.
        container: Name of the container that it runs in; empty for none.
    """

    path: str = ""
    levels: tuple[ProfileLevel, ...] = ()
    site: str = ""
    container: str = ""


class PegasusCatalogues:
    """The programs, files and sites that a workflow's catalogues know; what is added first goes before the rest.

    Args:
        builder: The builder of the workflow, for warnings.
    """

    def __init__(self, builder: WorkflowBuilder) -> None:
        self._builder = builder
        self.sizes: dict[str, int] = {}
        self._programs: dict[ProgramKey, list[ProgramEntry]] = {}
        self._replicas: dict[str, list[str]] = {}
        self._patterns: list[tuple[re.Pattern[str], list[str]]] = []
        self._sites: dict[str, ProfileLevel] = {}
        self._general: ProfileLevel = {}

    def program(self, key: ProgramKey) -> str:
        """Path of a program; empty where no catalogue has one."""
        return next((entry.path for entry in self._programs.get(key, ()) if entry.path), "")

    def levels(self, key: ProgramKey) -> tuple[ProfileLevel, ...]:
        """Profiles of a program, then those of its site, then those of the properties."""
        entries = self._programs.get(key, ())
        site = next((entry.site for entry in entries if entry.site), "")
        own = [level for entry in entries for level in entry.levels]
        return (*own, self._sites.get(site, {}), self._general)

    def container(self, key: ProgramKey) -> str:
        """Name of the container that a program runs in; empty for none."""
        return next((entry.container for entry in self._programs.get(key, ()) if entry.path), "")

    def location(self, name: str) -> str:
        """Path of a file that comes from outside; empty where no catalogue has one."""
        paths = self._replicas.get(name)
        if paths is None:
            for pattern, found in self._patterns:
                match = pattern.fullmatch(name)
                if match is not None:
                    paths = [_substituted(path, match) for path in found]
                    break
        there = [path for path in paths or () if Path(path).exists()]
        return next(iter(there or paths or ()), "")

    def add_program(self, key: ProgramKey, entry: ProgramEntry) -> None:
        """Add a program as one catalogue has it."""
        self._programs.setdefault(key, []).append(entry)

    def add_replica(self, name: str, urls: Iterable[str], folder: Path, *, size: int | None, regex: bool) -> None:
        """Add the places of a file.

        Raises:
            ValueError: Its name is no regular expression.
        """
        if size is not None and not regex:
            self.sizes.setdefault(name, size)
        paths = [path for url in urls if (path := local_path(url, folder))]
        if regex:
            self._patterns.append((re.compile(name), paths))
        elif paths:
            self._replicas.setdefault(name, paths)

    def read_inline(self, values: YamlValueReader, document: YamlMapping, *, follow: bool) -> None:
        """Read the catalogues within a workflow of Pegasus 5, and those that they refer to.

        Args:
            values: Reads the values of its file.
            document: The workflow.
            follow: True to read the files that ``$ref`` names.
        """
        folder = Path(values.file).parent
        for key in ("transformationCatalog", "replicaCatalog", "siteCatalog"):
            given = values.fields(document, key)
            self._document(values, given, folder)
            reference = values.text(given, "$ref")
            path = folder / (local_path(reference, folder) or "")
            if reference and follow and path.is_file():
                self._file(path)
            elif reference:
                self._builder.note("catalogues that are not there", reference)

    def read_beside(self, folder: Path, properties: Path | None = None) -> None:
        """Read the catalogues in a folder, and those that its properties name.

        Args:
            folder: The folder of the workflow.
            properties: Its properties, where they are not in `PROPERTIES` there.
        """
        found = properties or folder / PROPERTIES
        named = _properties(found) if found.is_file() else {}
        for kind, names in _FILES.items():
            told = named.get(_NAMED[kind], "")
            usual = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
            path = found.parent / (local_path(told, found.parent) or told) if told else usual
            if path.is_file():
                self._file(path)
            elif told:
                self._builder.note("catalogues that are not there", told)
        spaces = ((key.partition("."), value) for key, value in named.items())
        given: ProfileLevel = {(space, key): (value, None) for (space, _, key), value in spaces if space in _SPACES}
        self._general = requirements_of(given)

    def _file(self, path: Path) -> None:
        text = _text(path)
        if text.lstrip().startswith("<"):
            sites = parse_sites(text, str(path))
            if sites is None:
                self._builder.note("catalogues in formats that are not read", path.name)
            for site, profiles in (sites or {}).items():
                level = {key: (value, None) for key, value in profiles.items()}
                self._sites.setdefault(site, requirements_of(level))
            return
        document = _yaml(path)
        if document is not None and document.keys() & _FILES.keys():
            self._document(YamlValueReader(str(path)), document, path.parent)
        elif document is not None or not self._text_catalogue(path):
            self._builder.note("catalogues in formats that are not read", path.name)

    def _text_catalogue(self, path: Path) -> bool:
        """Read a text catalogue of Pegasus 4; False where it is none."""
        text, folder = _text(path), path.parent
        programs = parse_programs(text)
        by_key: dict[ProgramKey, list[ListedProgram]] = {}
        for listed in programs or ():
            by_key.setdefault(listed.key, []).append(listed)
        for key, sites in by_key.items():
            each = next((site for site in sites if local_path(site.url, folder)), sites[0])
            found = local_path(each.url, folder, bare=True)
            level = {name: (value, None) for name, value in each.profiles.items()}
            self.add_program(key, ProgramEntry(found, (level,), each.site if found else "", each.container))
        files: dict[tuple[str, bool], list[str]] = {}
        for entry in (parse_files(text) if programs is None else None) or ():
            named = entry.name, entry.attributes.get("regex", "").lower() == "true"
            files.setdefault(named, []).append(entry.url)
        for (name, regex), urls in files.items():
            try:
                self.add_replica(name, urls, folder, size=None, regex=regex)
            except re.error as error:
                raise WorkflowError(f"the lfn {name!r} is no regular expression: {error}", file=str(path)) from None
        return bool(programs or files)

    def _document(self, values: YamlValueReader, document: YamlMapping, folder: Path) -> None:
        for given, _ in values.rows(document, "transformations"):
            self.add_program(program_key(values, given), _entry(values, given, folder))
        for given, line in values.rows(document, "replicas"):
            urls = [values.text(place, "pfn") for place, _ in values.rows(given, "pfns")]
            name, regex = values.text(given, "lfn"), values.text(given, "regex").lower() == "true"
            try:
                self.add_replica(name, urls, folder, size=stated_size(values, given), regex=regex)
            except re.error as error:
                raise values.fail(f"the lfn {name!r} is no regular expression: {error}", line) from None
        for given, _ in values.rows(document, "sites"):
            self._sites.setdefault(values.text(given, "name"), requirements_of(profile_level(values, given)))


def find_file(name: str, catalogues: PegasusCatalogues, folder: Path) -> Path | None:
    """Find a file that a workflow names: where the catalogues have it, or else beside it; None if it is not there."""
    places = (catalogues.location(name), local_path(name, folder), str(folder / Path(name).name)) if name else ()
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def _entry(values: YamlValueReader, given: YamlMapping, folder: Path) -> ProgramEntry:
    sites = [site for site, _ in values.rows(given, "sites")]
    own = profile_level(values, given)
    for site in sites:
        url = values.text(site, "pfn")
        path = local_path(url, folder, bare=True)
        if path:
            levels = profile_level(values, site), own
            return ProgramEntry(path, levels, values.text(site, "name"), values.text(site, "container"))
    return ProgramEntry("", (*(profile_level(values, site) for site in sites[:1]), own))


def program_key(values: YamlValueReader, given: YamlMapping) -> ProgramKey:
    """Namespace, name and version of a transformation or of a job."""
    return values.text(given, "namespace"), values.text(given, "name"), values.text(given, "version")


def stated_size(values: YamlValueReader, given: YamlMapping) -> int | None:
    """The size of a file where it is used or in the catalogue: its own, or that of its metadata."""
    for holder in (given, values.fields(given, METADATA)):
        if holder.get("size") is not None:
            found = values.parsed(holder, "size", 0, lambda value: file_size(str(value)),
                                  f"the size of {values.text(given, 'lfn')!r}", "a number of bytes")  # fmt: skip
            return int(found)
    return None


def profile_level(values: YamlValueReader, given: YamlMapping) -> ProfileLevel:
    """The profiles and the metadata of a job, of a transformation or of a site."""
    found = {}
    profiles = values.fields(given, "profiles")
    for space, holder in (
        (METADATA, values.fields(given, METADATA)),
        *((space.lower(), values.fields(profiles, space)) for space in profiles),
    ):
        for key, value in holder.items():
            if value is not None and not isinstance(value, YamlMapping | YamlSequence):
                found[space, key] = str(value), holder.at(key)
    return found


def local_path(url: str, folder: Path, *, bare: bool = False) -> str:
    """Path on a machine that a URL or a path of a catalogue stands for; empty for those of other places.

    Args:
        url: Such as ``file:///data/x``, ``/data/x``, ``x`` or ``https://example.org/x``.
        folder: Folder of the catalogue, which relative paths are in.
        bare: True to leave a relative path as it is where there is no such file.
    """
    scheme, colon, rest = url.partition("://")
    if colon:
        if scheme.lower() != "file":
            return ""
        host, slash, path = rest.partition("/")
        return unquote(slash + path) if host in ("", "localhost") else ""
    if url.startswith("file:/"):
        return unquote(url.removeprefix("file:"))
    if not url or url.startswith("/"):
        return url
    return str(folder.absolute() / url) if not bare or (folder / url).exists() else url


def _substituted(path: str, match: re.Match[str]) -> str:
    """A path of a pattern, in which ``[1]`` is what its first group has found, and ``[0]`` all."""

    def group(found: re.Match[str]) -> str:
        number = int(found[1])
        return (match[number] or "") if number <= match.re.groups else found[0]

    return re.sub(r"\[(\d+)\]", group, path)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise WorkflowError(f"it is larger than {_MOST_BYTES >> 20} MiB", file=str(path))
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"cannot read {path}: {error}") from None


def _yaml(path: Path) -> YamlMapping | None:
    """The document of a catalogue; None for one that is no YAML, such as those of Pegasus 4."""
    text = _text(path)
    if path.suffix in (".yml", ".yaml"):
        return read_yaml_lines(text, str(path))
    try:
        return read_yaml_lines(text, str(path))
    except WorkflowError:
        return None


def _properties(path: Path) -> Mapping[str, str]:
    """Keys and values of Java properties; references to other keys are replaced."""
    found: dict[str, str] = {}
    before = ""
    for raw in _text(path).splitlines():
        line = before + raw.strip()
        before = ""
        if line.endswith("\\"):
            before = line[:-1]
        elif line and line[0] not in "#!":
            match = _PROPERTY.fullmatch(line)
            if match is not None:
                found[match[1]] = match[2]
    return {key: re.sub(r"\$\{([^}]+)\}", lambda name: found.get(name[1], name[0]), value)
            for key, value in found.items()}  # fmt: skip
