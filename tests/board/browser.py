# SPDX-License-Identifier: MIT
"""Chromium without a screen, driven by WebDriver's HTTP calls to chromedriver."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The name under which WebDriver hands out elements.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# Nothing but the page: no GPU, no sandbox (tests run as root in containers), no calls home.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-prefers-reduced-motion",
    "--lang=en-US",
    "--window-size=1400,1000",
)


class DriverError(Exception):
    """WebDriver refused a call; `code` is its name of the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message.splitlines()[0] if message else ''}")
        self.code = code


def program(name: str, package: str) -> str:
    """Path of a program of the system.

    Raises:
        FileNotFoundError: it is not installed; the message names the command that installs it.
    """
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is missing. Install it with: sudo apt-get install {package}")
    return path


def _until(true: Callable[[], object], complaint: Callable[[], str], within: float = 30) -> None:
    """As `eventually`, but slower: each look is work for the browser, which has its page to draw."""
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, complaint()
        time.sleep(0.05)


class Browser:
    """One browser with one empty profile in `folder`."""

    def __init__(self, folder: Path) -> None:
        chromium = program("chromium", "chromium chromium-driver")
        log = (folder / "chromedriver.log").open("wb")
        self._driver = subprocess.Popen(
            [program("chromedriver", "chromium-driver"), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        log.close()
        self._session = ""
        try:
            self._base = f"http://127.0.0.1:{self._port()}"
            options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
            made = self._ask(
                "POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            )
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def _port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            found = re.search(rb"started successfully on port (\d+)", line)
            if found:
                return int(found[1])
        raise RuntimeError(f"chromedriver ended with {self._driver.wait(timeout=10)}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self._base + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise DriverError(value["error"], value["message"]) from None

    def _post(self, path: str, **body: Any) -> Any:
        return self._ask("POST", self._session + path, body)

    def open(self, url: str) -> None:
        """Goes to a page and returns when it is loaded."""
        self._post("/url", url=url)

    def run(self, script: str, *args: Any) -> Any:
        """Runs the body of a JavaScript function in the page."""
        return self._post("/execute/sync", script=script, args=list(args))

    def text(self) -> str:
        """What the page shows."""
        text: str = self.run("return document.body.innerText")
        return text

    def shows(self, *words: str) -> None:
        """Waits until the page shows all of `words`, in any case of letters."""

        def missing() -> list[str]:
            text = self.text().casefold()
            return [word for word in words if word.casefold() not in text]

        _until(lambda: not missing(), lambda: f"the page does not show {missing()}:\n{self.text()}")

    def click(self, xpath: str) -> None:
        """Clicks the first visible element, once there is one that takes the click."""
        _until(lambda: self._clicked(xpath), lambda: f"{xpath} cannot be clicked:\n{self.text()}")

    def _clicked(self, xpath: str) -> bool:
        try:
            for row in self._post("/elements", using="xpath", value=xpath):
                element = f"/element/{row[ELEMENT]}"
                if self._ask("GET", f"{self._session}{element}/displayed"):
                    self._post(f"{element}/click")
                    return True
        except DriverError as error:
            # The page is still being drawn or moved.
            if error.code not in (
                "stale element reference",
                "element click intercepted",
                "element not interactable",
            ):
                raise
        return False

    def gone(self, xpath: str) -> None:
        """Waits until there is no such element."""
        _until(
            lambda: not self._post("/elements", using="xpath", value=xpath), lambda: f"{xpath} is still there"
        )

    def screenshot(self, path: Path) -> None:
        """Writes what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        """Ends the browser and its driver."""
        try:
            if self._session:
                self._ask("DELETE", self._session)
        finally:
            # Its own process group: the browser goes too where it did not end by itself.
            try:
                os.killpg(self._driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._driver.wait(timeout=10)
