"""Make the picture of the guide: `python docs/make_images.py`.

The same comparison as `fairlead compare`, drawn by the plots of its report, two of them side by side.
"""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.image
import numpy as np

import fairlead
from fairlead.cli.compare import DEFAULT_POLICIES
from fairlead.report import plots

IMAGES = Path(__file__).parent / "images"
SHOWN = ("jct-cdf", "queue")
PAD = 24
"""White pixels around each plot."""


def compare_png() -> bytes:
    """How long jobs take, and how many wait, under each policy."""
    runs = dict(zip(DEFAULT_POLICIES, fairlead.compare(DEFAULT_POLICIES), strict=True))
    drawn = [plot for name in SHOWN for plot in plots.PLOTS if plot.name == name]
    panels = [matplotlib.image.imread(io.BytesIO(plots.save(plot, runs, "png"))) for plot in drawn]
    spaced = [np.pad(panel, ((PAD, 0), (PAD, PAD), (0, 0)), constant_values=1.0) for panel in panels]
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, np.hstack(spaced), format="png")
    return buffer.getvalue()


def main() -> None:
    """Write the images."""
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / "compare.png"
    path.write_bytes(compare_png())
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
