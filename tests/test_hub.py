"""Where the hub does not answer, what is loaded comes from the cache alone, at once."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import datasets.config
import huggingface_hub.constants as hub
import pytest

from rlvr_dir.hub import hub_or_cache


class Refuses(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_error(403)  # an answer

    def log_message(self, *_):
        pass


@pytest.fixture
def online(monkeypatch):
    """As without HF_HUB_OFFLINE, which the tests set."""
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    return monkeypatch


def test_no_answer_is_offline_until_the_end(online):
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        address = f"http://127.0.0.1:{server.server_port}"
    online.setattr(hub, "ENDPOINT", address)  # nobody listens there any more
    with hub_or_cache():
        assert hub.is_offline_mode()
        assert datasets.config.HF_HUB_OFFLINE
    assert not hub.is_offline_mode()
    assert not datasets.config.HF_HUB_OFFLINE


def test_any_answer_leaves_the_loading_to_the_libraries(online):
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            online.setattr(hub, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
            with hub_or_cache():
                assert not hub.is_offline_mode()
        finally:
            server.shutdown()
            thread.join()


def test_offline_asks_nobody(monkeypatch):
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("rlvr_dir.hub._answers", lambda url: pytest.fail("asked"))
    with hub_or_cache():
        assert hub.is_offline_mode()
    assert hub.HF_HUB_OFFLINE
