"""Experiments on real GPUs that fill profiles, and what is made of their results.

`import_runs` turns raw measurements into a variability profile, `synthetic_variability` and `drifted` invent one,
`summarise` says what is in one; `cluster_applications` finds the classes of applications.
"""

from fairlead.measure.classes import Classes, cluster_applications, load_classes, save_classes
from fairlead.measure.counters import Counters, read_counters
from fairlead.measure.importing import Imported, import_runs
from fairlead.measure.summary import summarise
from fairlead.measure.synthetic import drifted, synthetic_variability

__all__ = [
    "Classes",
    "Counters",
    "Imported",
    "cluster_applications",
    "drifted",
    "import_runs",
    "load_classes",
    "read_counters",
    "save_classes",
    "summarise",
    "synthetic_variability",
]
