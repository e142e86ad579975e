# SPDX-License-Identifier: MIT
"""The web board of `server.js` and its pages, as a reader with a mouse has them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from tests.board.browser import Browser

FOLDER = Path(__file__).resolve().parent
# The buttons of a job have an icon and no text.
ICONS = {
    "retry": "lucide-refresh-cw",
    "promote": "lucide-corner-up-left",
    "remove": "lucide-trash-2",
    "remove unprocessed children": "lucide-list-x",
}


class Served:
    """A board for some queues of the server at `port`, by its HTTP interface."""

    def __init__(self, port: int, prefix: str, queues: list[str]) -> None:
        node = shutil.which("node")
        if node is None or not (FOLDER / "node_modules" / "@bull-board").is_dir():
            raise FileNotFoundError("node or its packages are missing: run `npm ci` in tests/board")
        self._process = subprocess.Popen(
            [node, "server.js", str(port), prefix, *queues],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the board ended with {self._process.wait(timeout=10)}")
        self.url = f"http://127.0.0.1:{int(line)}"

    def get(self, *path: str, **query: object) -> Any:
        """What the pages are made of."""
        return self._call("GET", path, query)

    def put(self, *path: str, **query: object) -> Any:
        """What a button sends."""
        return self._call("PUT", path, query)

    def _call(self, method: str, path: tuple[str, ...], query: dict[str, object]) -> Any:
        where = "/".join(quote(part, safe="") for part in ("api", *path))
        request = Request(f"{self.url}/{where}?{urlencode(query)}", method=method)
        with urlopen(request, timeout=20) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def close(self) -> None:
        """Ends the board's process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=15)


class Board(Served):
    """A board shown in `browser`."""

    def __init__(self, browser: Browser, port: int, prefix: str, queues: list[str]) -> None:
        super().__init__(port, prefix, queues)
        self.browser = browser

    def visit(self, queue: str = "", *, job: str = "", status: str = "") -> None:
        """The page of all queues, of one, or of a job; of a queue the jobs in one state."""
        path = "".join(f"/{quote(part, safe='')}" for part in ("queue" if queue else "", queue, job) if part)
        self.browser.open(f"{self.url}{path or '/'}{f'?status={status}' if status else ''}")

    def press(self, queue: str, job: str, button: str) -> None:
        """A button of a job, on its page, and "Confirm"."""
        self.visit(queue, job=job)
        self.browser.click(
            f"//ul[contains(@class,'jobActions')]//button[.//*[contains(@class,'{ICONS[button]}')]]"
        )
        self.confirm()

    def press_all(self, queue: str, status: str, button: str) -> None:
        """A button above the jobs in one state, and "Confirm"."""
        self.visit(queue, status=status)
        self.browser.click(f"//ul[contains(@class,'queueActions')]//button[contains(.,'{button}')]")
        self.confirm()

    def choose(self, queue: str, item: str) -> None:
        """An item of the queue's menu, and "Confirm"."""
        self.visit(queue)
        self.browser.click("//button[.//*[contains(@class,'lucide-ellipsis-vertical')]]")
        self.browser.click(f"//*[@role='menuitem'][.='{item}']")
        self.confirm()

    def press_at_scheduler(self, scheduler: str, queue: str, button: str) -> None:
        """A button in a scheduler's row of the page "Schedulers", and "Confirm"."""
        self.browser.open(f"{self.url}/job-schedulers")
        row = f"//tr[.//*[text()='{scheduler}'] and .//*[text()='{queue}']]"
        self.browser.click(f"{row}//button[@title='{button}']")
        self.confirm()

    def confirm(self) -> None:
        """Answers "Are you sure?", and waits until the question is gone."""
        self.browser.click("//button[.='Confirm']")
        self.browser.gone("//button[.='Confirm']")
