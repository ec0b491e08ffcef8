"""Check once whether the Hugging Face Hub answers, so that a load fails in seconds instead of half a minute."""

from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 5.0  # for an answer of any kind


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Load only from the cache in the `with` block if the hub does not answer.

    `datasets` and `huggingface_hub` retry for 27 s before they report that there is no network. If HF_HUB_OFFLINE is
    set, the hub is not contacted.
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
        get_session().head(url, timeout=SECONDS)  # through the proxies that its own requests use
    except Exception:  # any kind of missing network
        return False
    return True
