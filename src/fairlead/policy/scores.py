"""What is believed of the GPUs: the scores that policies read.

The profile of the cluster to begin with; a driver may correct it from what it observes (`observe`). A version per class
lets a policy notice a change without comparing.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.variability import Variability


class Scores:
    """Believed scores per class."""

    def __init__(self, profile: Variability) -> None:
        self._profile = profile
        self._versions: dict[str, int] = {}

    def of_class(self, app_class: str) -> Sequence[float]:
        """Believed scores of one class, one per GPU."""
        return self._profile.of_class(app_class)

    def version(self, app_class: str) -> int:
        """Changes whenever a score of the class does."""
        return self._versions.get(app_class, 0)
