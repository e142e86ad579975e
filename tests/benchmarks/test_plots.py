# SPDX-License-Identifier: MIT
"""Plots are well-formed pictures with a line for each series."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.plots import PLOTS, decades, draw, points_of


def test_a_plot_has_a_line_for_each_series() -> None:
    plot = PLOTS[0]
    forms = ("one <call>", "pipelined")
    rows = [{"form": form, "jobs": n, "wall ms": n / 7} for form in forms for n in (10, 100, 1_000)]
    points = points_of(plot, {"EXISTS probe: which": {"rows": rows}})
    assert list(points) == list(forms)
    picture = ElementTree.fromstring("\n".join(draw(plot, points)))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(forms)


def test_axes_embrace_their_values() -> None:
    assert decades([3, 20_000]) == [0, 1, 2, 3, 4, 5]
    assert decades([1]) == [0, 1]
    assert decades([]) == [0, 1]
