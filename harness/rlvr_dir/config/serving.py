"""Set where a server of a pair listens, who may send requests, and how large these may be."""

from ipaddress import ip_address
from typing import ClassVar

from pydantic import Field

from rlvr_dir.config.base import Spec


class Address(Spec, frozen=True):
    """Set where the server listens, and who may send requests."""

    called: ClassVar[str] = "server"

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; if others can reach it, a key is required."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 selects a free one.")
    api_key: str | None = Field(
        default=None, min_length=1, description="Key that clients must send; better set in VLLM_API_KEY."
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[^:\s]+$",
        description="Model name of the pair; by default its own name, or its RL model's.",
    )
    ui: bool = Field(default=False, description="Also serve a page that answers a problem with several decodings.")


class Limits(Spec, frozen=True):
    """Limit how large one request may be, and how many may run at once."""

    most_tokens: int | None = Field(
        default=None, ge=1, description="Largest max_tokens of a request; by default what the context allows."
    )
    most_samples: int = Field(default=64, ge=1, description="Largest n of a request.")
    stream_interval: int = Field(
        default=1,
        ge=1,
        description="Tokens per chunk of a stream; the first token of a response is sent alone.",
    )
    grace: int = Field(default=60, ge=1, description="Seconds that running requests have to end after SIGTERM.")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
