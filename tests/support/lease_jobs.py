# SPDX-License-Identifier: MIT
"""Processor and hook for lease-plane pools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.soak_jobs import mixed, poison, work


async def by_name(job: Any) -> dict[str, Any]:
    """`poison` kills its process, `fails` fails as often as it is told, all others work."""
    if job.name == "poison":
        poison(job)
    if job.name == "fails":
        return await mixed(job)
    if job.name == "tells":
        await job.log("on my way")
        await job.update_data({**job.data, "n": 7})
        await job.update_progress({"half": True})  # last: the test looks as soon as it sees it
    return await work(job)


def note(event: Any) -> None:
    """A hook: appends what it hears to the file that the environment names."""
    with Path(os.environ["HOOK_FILE"]).open("a") as file:
        file.write(f"{event.name} {event.job_id} {event.data.get('returnvalue')}\n")
