"""Downloading one source distribution from the user's package index."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage, NoSuchProjectError, ProjectPage, PyPISimple, UnsupportedContentTypeError
from requests.auth import AuthBase, HTTPBasicAuth

from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks.index import configured_certificates, configured_index, without_credentials
from pairtrial.tasks.model import PypiSdist

_TIMEOUT = (10.0, 60.0)


class _SameHost(AuthBase):
    """The index's credentials, for the index's host only: files may lie on another."""

    def __init__(self, host: str, user: str, password: str) -> None:
        self._host = host
        self._basic = HTTPBasicAuth(user, password)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return self._basic(request) if urlsplit(request.url or "").netloc == self._host else request


class _Cap:
    """Progress of pypi_simple, used to stop a download that is larger than announced."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._left = limit

    def __call__(self, _: int | None) -> _Cap:
        return self

    def __enter__(self) -> _Cap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return None

    def update(self, increment: int) -> None:
        self._left -= increment
        if self._left < 0:
            raise TaskError(f"{self._name}: the download is larger than the limit", slug="download-too-large")


def download_sdist(document: PypiSdist, target: Path, limit: int) -> None:
    """Write the sdist that the index has for this name and version to ``target``; its hash is not checked here.

    Raises `EnvironmentFault` when the index cannot be reached and `TaskError` when it has no such file.
    """
    index = configured_index()
    shown = without_credentials(index) if index else "the default package index"
    with _client(index) as client:
        try:
            page = client.get_project_page(document.name, timeout=_TIMEOUT)
            package = _choose(document, page, shown)
            cap = _Cap(f"{document.name} {document.version}", limit)
            client.download_package(package, target, verify=False, progress=cap, timeout=_TIMEOUT)
        except NoSuchProjectError:
            raise TaskError(f"{shown} has no project {document.name!r}", slug="no-such-release") from None
        except (requests.RequestException, UnsupportedContentTypeError, OSError) as fault:
            raise EnvironmentFault(
                f"{document.name} {document.version} cannot be downloaded from {shown} ({type(fault).__name__})",
                hint="check the network and the index that pip or uv is configured with (PIP_INDEX_URL, "
                "UV_DEFAULT_INDEX); what has been downloaded before is used without a network",
                slug="registry-unreachable",
            ) from fault


def _client(index: str | None) -> PyPISimple:
    session = requests.Session()
    options: dict[str, Any] = {"session": session}
    if certificates := configured_certificates():
        session.verify = certificates
    if index is not None:
        parts = urlsplit(index)
        host = parts.netloc.rpartition("@")[2]
        options["endpoint"] = urlunsplit(parts._replace(netloc=host))
        if parts.username is not None:
            options["auth"] = _SameHost(host, unquote(parts.username), unquote(parts.password or ""))
    return PyPISimple(**options)


def _choose(document: PypiSdist, page: ProjectPage, shown: str) -> DistributionPackage:
    wanted = Version(document.version)
    found = [item for item in page.packages if item.package_type == "sdist" and _is(item.version, wanted)]
    if not found:
        raise TaskError(
            f"{shown} has no source distribution of {document.name} {document.version}", slug="no-such-release"
        )
    # The one that the index itself gives the pinned hash, when there are several (.zip and .tar.gz).
    return next((item for item in found if item.digests.get("sha256") == document.sha256), found[0])


def _is(version: str | None, wanted: Version) -> bool:
    try:
        return version is not None and Version(version) == wanted
    except InvalidVersion:
        return False
