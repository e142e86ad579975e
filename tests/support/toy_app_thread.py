# SPDX-License-Identifier: MIT
"""An app whose import leaves a thread running."""

from __future__ import annotations

import threading
import time

threading.Thread(target=time.sleep, args=(300,), name="metrics-flusher", daemon=True).start()


def handle(job: object) -> None:
    pass
