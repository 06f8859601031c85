"""A cluster's catalogue of profiles: those that are built in, and those that its operator has declared."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.profile import PROFILES, Profile, profile_named


class Catalogue:
    """Profiles by name, whatever the case of its letters; a declared one goes before a built-in one of its name."""

    def __init__(self, declared: Iterable[Profile] = ()) -> None:
        self._declared = {profile.name.lower(): profile for profile in declared}

    def profile(self, name: str) -> Profile:
        """The one of that name; the generic one, under that name, where nobody knows it."""
        found = self._declared.get(name.lower())
        return found if found is not None else profile_named(name)

    def names(self) -> list[str]:
        """All that are known, sorted."""
        return sorted(profile.name for profile in {**PROFILES, **self._declared}.values())


BUILT_IN = Catalogue()
"""Nothing declared."""
