"""JupyterLab on a copy of the walkthroughs, and Chromium to drive it; both on the loopback interface only."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import sync_playwright

from lab.widgets import static

ROOT = Path(__file__).resolve().parents[2]
CHECKS = (Path(__file__).parent / "page_checks.js").read_text(encoding="utf-8")
FRONT_END = os.environ.get("STEPSCOPE_FRONT_END", "jupyterlab")  # or "notebook", of this Python's environment
CHROMIUM = os.environ.get("STEPSCOPE_CHROMIUM", "/usr/bin/chromium")
SERVER_FLAGS = (
    "--no-browser",
    "--allow-root",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--ServerApp.disable_check_xsrf=True",
    "--IdentityProvider.token=",
    "--LabApp.news_url=",
    "--expose-app-in-browser",
)
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_up(url: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        assert server.poll() is None, f"JupyterLab ended: {log.read_text()[-2000:]}"
        try:
            with urllib.request.urlopen(f"{url}/api", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    message = f"JupyterLab did not answer: {log.read_text()[-2000:]}"
    raise AssertionError(message)


class Lab:
    """A running JupyterLab: its address, the folder it serves, and the memory of its kernels."""

    def __init__(self, url: str, folder: Path, process: subprocess.Popen) -> None:
        self.url = url
        self.folder = folder
        self._process = psutil.Process(process.pid)

    def kernel_rss(self) -> int:
        """Return the resident bytes of the largest kernel."""
        kernels = [p for p in self._process.children(recursive=True) if "ipykernel" in " ".join(p.cmdline())]
        return max(p.memory_info().rss for p in kernels)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """JupyterLab (or another front end), rooted in a copy of the walkthroughs."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "walkthroughs", folder / "walkthroughs")
    state = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    log, port = folder / "server.log", _free_port()
    command = [sys.executable, "-m", FRONT_END, *SERVER_FLAGS, f"--ServerApp.port={port}"]
    command += [f"--ServerApp.root_dir={folder}"]
    environment = {k: v for k, v in os.environ.items() if k != "LAB_STATIC"} | state | {"PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(url, server, log)
        yield Lab(url, folder, server)
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium; nothing is downloaded."""
    assert Path(CHROMIUM).exists(), f"the browser tests need {CHROMIUM} (apt-get install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(BROWSER_FLAGS))
        yield browser
        browser.close()


class Watched:
    """A page that remembers what it should not have done."""

    def __init__(self, page) -> None:
        self.page = page
        self.external: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._on_request)
        page.on("pageerror", lambda error: self.errors.append(str(error)[:400]))

    def _on_request(self, request) -> None:
        if not request.url.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")):
            self.external.append(request.url)


@pytest.fixture(scope="session")
def open_page(chromium):
    """Open a fresh watched page of 1400 x 1100."""

    def open_one():
        return Watched(chromium.new_page(viewport={"width": 1400, "height": 1100}))

    return open_one


@pytest.fixture
def page_over(open_page, tmp_path):
    """Open a page over a trace and return it when the stepper is ready."""
    opened = []

    def open_one(trace, **options):
        watched = open_page()
        opened.append(watched)
        file = tmp_path / f"page{len(opened)}.html"
        file.write_text(static.make_page(trace, **options), encoding="utf-8")
        watched.page.goto(file.as_uri())
        watched.page.wait_for_selector('[data-ready="1"]', timeout=20_000)
        watched.page.add_script_tag(content=CHECKS)
        return watched.page

    yield open_one
    for watched in opened:
        assert watched.errors == []
        assert [url for url in watched.external if not url.startswith("file:")] == []
        watched.page.close()
