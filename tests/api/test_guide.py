# SPDX-License-Identifier: MIT
"""What docs/python.md shows runs as it stands there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from echomq_pool.api.producers import producers
from tests.support.servers import Server

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


async def test_the_guides_examples_run_in_their_order(
    own_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, Any] = {"url": own_server.url}
    for block in blocks:
        code = compile(block, "docs/python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
    await producers.close()
    producers.target = None
    shown = capsys.readouterr().out
    assert "{'waiting': 5, 'delayed': 1}" in shown
    assert "['pick', 'label']" in shown or "['label', 'pick']" in shown
    assert "{'seen': {'order': 21}}" in shown
    assert "'held': True}" in shown
    assert "lease 'customer:42' is held by somebody else" in shown
