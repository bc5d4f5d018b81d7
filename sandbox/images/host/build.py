"""Build an image from files of this machine: no registry, no network, about three seconds.

    python sandbox/images/host/build.py [--tag pairtrial/host:1] [--out rootfs.tar] [--python PREFIX ...]

The image holds what a Python task needs: a shell with the usual small programs, git, the system's Python, and the
shared libraries of all of them. ``--python`` names further Python installations whose libraries must be there (the
installations themselves are mounted, not packed). It prints the id that a plan may pin. The bytes differ from machine
to machine; what matters is that one run uses one image, and that every receipt names its id.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

PROGRAMS = """
sh bash dash env ls cat cp mv rm mkdir rmdir ln chmod touch echo printf true false test head tail sort uniq wc tr cut tee
sleep timeout date id pwd stat du dd seq basename dirname readlink realpath mktemp mkfifo uname nproc expr xargs find
grep sed awk mawk diff cmp patch tar gzip git python3 ps kill setsid nohup yes od
"""
TREES = ("/usr/lib/git-core", "/usr/share/git-core/templates", "/usr/share/zoneinfo", "/etc/ssl/certs")
LOADED_LATE = tuple(
    f"lib{name}.so*"
    for name in ("nss_*", "nsl", "resolv", "gcc_s", "stdc++", "gomp", "rt", "dl", "pthread", "util", "m", "z", "expat")
)
"""What `ldd` of a program does not show: name services, and what compiled packages of Python may take for granted."""
LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "turtledemo", "ensurepip", "tkinter"}
FOLDERS = ("etc", "home", "proc", "sys", "dev", "run", "var", "var/lib", "usr", "usr/bin", "usr/lib", "workspace")
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
TEXTS = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}


class Rootfs:
    """A tar file that becomes the image."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.tar = tar
        self.seen: set[str] = set()

    def entry(self, name: str, mode: int, *, text: str | None = None, link: str | None = None) -> None:
        """A folder, file or link that no file of the machine stands for."""
        if name in self.seen:
            return
        self.seen.add(name)
        info = tarfile.TarInfo(name)
        info.mode = mode
        data = b"" if text is None else text.encode()
        if link is not None:
            info.type, info.linkname = tarfile.SYMTYPE, link
        elif text is None:
            info.type = tarfile.DIRTYPE
        info.size = len(data)
        self.tar.addfile(info, io.BytesIO(data))

    def add(self, path: str) -> None:
        """A file, and every link on the way to it; merged folders (/lib for /usr/lib) under their real names."""
        while True:
            path = str(Path(path).parent.resolve() / Path(path).name)
            name = path.lstrip("/")
            if name in self.seen:
                return
            self.seen.add(name)
            self.tar.add(path, arcname=name, recursive=False, filter=_ours)
            if not Path(path).is_symlink():
                return
            path = str(Path(path).parent / Path(path).readlink())

    def add_tree(self, root: str) -> None:
        """A folder with what is in it."""
        for here, folders, files in os.walk(root):
            folders[:] = sorted(set(folders) - LEFT_OUT)
            for name in sorted(files):
                self.add(f"{here}/{name}")


def _ours(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode &= 0o755
    return info


def libraries(programs: list[str]) -> list[str]:
    """Shared libraries that programs and modules load."""
    shown = subprocess.run(["/usr/bin/ldd", *programs], capture_output=True, text=True, check=False).stdout
    return sorted({word for word in shown.split() if word.startswith("/") and not word.endswith(":")})


def pack(out: Path, pythons: list[Path]) -> None:
    """Write the root file system."""
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        rootfs = Rootfs(tar)
        for name, link in LINKS.items():
            rootfs.entry(name, 0o777, link=link)
        for name in FOLDERS:
            rootfs.entry(name, 0o755)
        rootfs.entry("root", 0o755)
        for name in ("tmp", "var/tmp"):
            rootfs.entry(name, 0o1777)
        for name, text in TEXTS.items():
            rootfs.entry(name, 0o644, text=text)
        loaded = []
        for name in PROGRAMS.split():
            path = f"/usr/bin/{name}"
            if Path(path).exists():
                rootfs.add(path)
                loaded.append(path)
        system = Path(f"/usr/lib/python{_system_version()}")
        for tree in (*TREES, str(system)):
            rootfs.add_tree(tree)
        loaded += [str(path) for path in system.glob("lib-dynload/*.so")]
        for prefix in pythons:
            loaded += [str(path) for path in prefix.glob("bin/python3*") if not path.is_symlink()]
            loaded += [str(path) for path in prefix.glob("lib/python3*/lib-dynload/*.so")]
        for path in libraries(loaded):
            if not any(Path(path).is_relative_to(prefix) for prefix in pythons):
                rootfs.add(path)
        multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
        for pattern in LOADED_LATE:
            for found in sorted(Path("/usr/lib", multiarch).glob(pattern)):
                rootfs.add(str(found))


def _system_version() -> str:
    command = ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def import_image(out: Path, tag: str) -> str:
    """Give the root file system to the engine; the image's id."""
    import docker

    client = docker.from_env()
    try:
        repository, _, version = tag.partition(":")
        client.api.import_image(src=str(out), repository=repository, tag=version or "latest")
        return str(client.images.get(tag).id)
    finally:
        client.close()


def main() -> None:
    """Pack, import, print the id."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", default="pairtrial/host:1")
    parser.add_argument("--out", type=Path, help="keep the root file system here, and do not import it")
    parser.add_argument("--python", type=Path, action="append", default=None)
    options = parser.parse_args()
    pythons = options.python if options.python is not None else [Path(sys.base_prefix)]
    if options.out is not None:
        pack(options.out, pythons)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pairtrial-image-") as folder:
        pack(Path(folder) / "rootfs.tar", pythons)
        sys.stdout.write(import_image(Path(folder) / "rootfs.tar", options.tag) + "\n")


if __name__ == "__main__":
    main()
