"""Where a server of a pair listens, who may ask, and for how much."""

from ipaddress import ip_address
from typing import ClassVar

from pydantic import Field

from rlvr_dir.config.base import Spec


class Address(Spec, frozen=True):
    """Where the server listens, and who may ask."""

    called: ClassVar[str] = "server"

    host: str = Field(default="127.0.0.1", description="Address to listen at; others than this machine need a key.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen at; 0 takes a free one.")
    api_key: str | None = Field(
        default=None, min_length=1, description="Key that clients must send; better set in VLLM_API_KEY."
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[^:\s]+$",
        description="Name of the pair as a model; default its name, or its RL model's.",
    )
    ui: bool = Field(default=False, description="Serve a page beside it: a problem, answered under several rules.")


class Limits(Spec, frozen=True):
    """How much one request may ask for, and how many may be asked at once."""

    most_tokens: int | None = Field(
        default=None, ge=1, description="Largest max_tokens of a request; default what the context allows."
    )
    most_samples: int = Field(default=64, ge=1, description="Largest n of a request.")
    stream_interval: int = Field(
        default=1,
        ge=1,
        description="Tokens that a stream's chunk waits for; the first one of a response is sent alone.",
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
