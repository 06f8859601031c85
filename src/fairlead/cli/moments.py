"""Moments as people write them: `30d` ago, `14:30` today, `2026-11-18` or `2026-11-18T14:30`, in local time."""

from __future__ import annotations

import re
from datetime import datetime

from fairlead.errors import InputError

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def moment(text: str, what: str, now_s: float) -> float:
    """As seconds since 1970; `what` is named where the text is no moment."""
    from fairlead.live.jobs.quantities import seconds

    said = text.strip()
    try:
        if _CLOCK.fullmatch(said):
            today = datetime.fromtimestamp(now_s).date().isoformat()
            return datetime.fromisoformat(f"{today}T{said.zfill(5 if said.count(':') == 1 else 8)}").timestamp()
        if _DATE.match(said):
            return datetime.fromisoformat(said).timestamp()
        return max(now_s - seconds(said.removesuffix("ago").strip(), what), 0.0)
    except (ValueError, OverflowError, InputError):
        raise InputError(
            f"{what} is {text!r}; expected how long ago, or a moment",
            hint="for example 10m, 30d, 14:30, 2026-11-18 or 2026-11-18T14:30",
        ) from None
