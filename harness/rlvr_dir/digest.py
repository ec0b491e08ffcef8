"""Name settings, texts and files by the first digits of a SHA-256, and packages by their versions."""

import json
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version


def digest(data: str | bytes, digits: int = 16) -> str:
    """Return the first hexadecimal digits of the SHA-256 of some bytes, or of a text in UTF-8."""
    return sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).hexdigest()[:digits]


def digest_of(value: object, digits: int = 16) -> str:
    """Return the digest of a value as JSON with sorted keys."""
    return digest(json.dumps(value, sort_keys=True), digits)


@cache
def installed(*packages: str) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
