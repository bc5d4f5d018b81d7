"""Which package index the user has configured, for downloads of ours and for ``uv``.

No host is named here: what is not configured is left to the client's own default.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
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
    return _pip_settings().get("index-url")


def configured_certificates() -> str | None:
    """Bundle of certificates that pip was told to use."""
    return os.environ.get("PIP_CERT") or _pip_settings().get("cert")


@lru_cache(maxsize=1)
def _pip_settings() -> Mapping[str, str]:
    """``global`` settings of pip's files; empty without pip (it is only read before something is downloaded)."""
    if importlib.util.find_spec("pip") is None:
        return {}
    argv = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = re.findall(r"^global\.([\w-]+)='(.*)'$", done.stdout.decode(errors="replace"), re.MULTILINE)
    return dict(found)


def tool_environment() -> dict[str, str]:
    """Environment for ``uv``: the user's own, without what would make two machines install two things."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_DROPPED) and (not name.startswith("UV_") or _UV_KEPT.fullmatch(name))
    }
    index = configured_index()
    if index is not None and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & kept.keys():
        kept["UV_DEFAULT_INDEX"] = index
    return kept


def without_credentials(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
