"""The Hugging Face hub, asked once whether it answers: without it a load fails in seconds instead of half a minute."""

from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 5.0  # for an answer, of any kind


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Let what is loaded inside come from the cache alone where the hub does not answer.

    `datasets` and `huggingface_hub` try again for 27 s before they say that there is no network. Where HF_HUB_OFFLINE
    is set, nothing is asked.
    """
    import datasets.config
    import huggingface_hub.constants as hub

    if hub.HF_HUB_OFFLINE or _answers(hub.ENDPOINT):
        yield
        return
    before = datasets.config.HF_HUB_OFFLINE
    hub.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = False, before


def _answers(url: str) -> bool:
    from huggingface_hub.utils import get_session

    try:
        get_session().head(url, timeout=SECONDS)  # through the proxies that its own requests take
    except Exception:  # whatever kind of no network it is
        return False
    return True
