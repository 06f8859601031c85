"""The environment variables that begin with FAIRLEAD_: one that nobody reads is a mistake, and is told."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from fairlead.errors import InputError
from fairlead.job import place

PREFIX = "FAIRLEAD_"
READ = frozenset({"FAIRLEAD_CONFIG", "FAIRLEAD_HOME", "FAIRLEAD_URL", "FAIRLEAD_TOKEN", "FAIRLEAD_CACHE"})
"""By commands, besides the settings of the controller."""
_TOLD = frozenset({
    place.ID, place.ATTEMPT, place.NUM_GPUS, place.FAKE, place.REPORT, place.STOP, place.LATENCY,
    place.LAUNCH, place.GPUS,
})  # fmt: skip
"""To jobs, in which commands may be called, too;"""
_TO_SHIM = "FAIRLEAD_SHIM_"
"""and all with this beginning."""


def unknown(names: Iterable[str], settings: Iterable[str]) -> InputError | None:
    """Of the first variable that means nothing; `settings` are the controller's."""
    known = {*READ, *settings}
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known | _TOLD and not name.startswith(_TO_SHIM):
            close = difflib.get_close_matches(name, sorted(known), n=1)
            also = f"did you mean {close[0]}? " if close else ""
            return InputError(
                f"the environment has {name}, which means nothing", hint=f"{also}`fairlead config show` lists all"
            )
    return None
