"""Which package index the user has configured, for downloads of ours and for ``uv``.

No host is named here: what is not configured is left to the client's own default.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

_UV_KEPT = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|INDEX_\w+_(USERNAME|PASSWORD)|FIND_LINKS|CACHE_DIR"
    r"|CONFIG_FILE|HTTP_\w+|REQUEST_TIMEOUT|NATIVE_TLS|SYSTEM_CERTS|KEYRING_PROVIDER|INSECURE_HOST|OFFLINE|CONCURRENT_\w+)"
)
"""Settings that say where and how to download; others (constraints, overrides, targets) would change the result."""
_DROPPED = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "PIP_", "GIT_")


def configured_index(environ: Mapping[str, str] | None = None) -> str | None:
    """URL of the user's index: environment of uv, environment of pip, pip's configuration files; else None."""
    source = os.environ if environ is None else environ
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if value := source.get(name, "").strip():
            # uv accepts NAME=URL.
            return re.sub(r"^[\w-]+=(?=\w+://)", "", value)
    return _pip_settings(source).get("index-url")


def configured_certificates(environ: Mapping[str, str] | None = None) -> str | None:
    """Bundle of certificates that pip was told to use."""
    source = os.environ if environ is None else environ
    return source.get("PIP_CERT") or _pip_settings(source).get("cert")


def _pip_settings(environ: Mapping[str, str]) -> Mapping[str, str]:
    """``[global]`` settings of pip's configuration files, the later ones winning, as pip itself reads them."""
    found: dict[str, str] = {}
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update({name.replace("_", "-"): value.strip() for name, value in parser.items(section)})
    return found


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    home = Path(environ.get("HOME") or os.path.devnull)
    folders = [folder for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep) if folder]
    files = [Path(folder) / "pip" / "pip.conf" for folder in reversed(folders)]
    files += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf"]
    files.append(Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf")
    if sys.platform == "darwin":
        files.append(home / "Library" / "Application Support" / "pip" / "pip.conf")
    files.append(Path(sys.prefix) / "pip.conf")
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    return [*files, Path(named)] if named else files


def tool_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for ``uv``: the user's own, without what would make two machines install two things."""
    source = os.environ if environ is None else environ
    kept = {
        name: value
        for name, value in source.items()
        if not name.startswith(_DROPPED) and (not name.startswith("UV_") or _UV_KEPT.fullmatch(name))
    }
    index = configured_index(source)
    if index is not None and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & kept.keys():
        kept["UV_DEFAULT_INDEX"] = index
    return kept


def without_credentials(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
