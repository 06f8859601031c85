"""Traces: readers of public formats, our own format, and synthetic generators.

`load(path)` finds the format by content; `generate(spec)` makes a synthetic one. Both give a `Trace`.
"""

from fairlead.traces.describe import describe
from fairlead.traces.load import load
from fairlead.traces.synthetic import builtin_demo, generate, request_rate
from fairlead.traces.trace import Trace, Wrap
from fairlead.traces.write import save

__all__ = ["Trace", "Wrap", "builtin_demo", "describe", "generate", "load", "request_rate", "save"]
