"""What names settings, texts and files in hashes and records: the first hexadecimal digits of a SHA-256."""

import json
from hashlib import sha256


def digest(data: str | bytes, digits: int = 16) -> str:
    """Return the first hexadecimal digits of the SHA-256 of some bytes, or of a text in UTF-8."""
    return sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).hexdigest()[:digits]


def digest_of(value: object, digits: int = 16) -> str:
    """Return the digest of a value as JSON with sorted keys."""
    return digest(json.dumps(value, sort_keys=True), digits)
