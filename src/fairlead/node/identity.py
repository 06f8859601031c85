"""Which start of a job this is: one identity, from the controller over the wire to the folders of a node.

A job is tried until it is through; each try is an *attempt*, numbered by the controller. On a node an attempt is
*launched* once, and a service that fails is launched again within the same attempt. Printed and parsed here only:
`17.2.9f3c01ab` is the second attempt of job 17, and `17.2.9f3c01ab@0` its first launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """One attempt of a job.

    Numbers alone are no identity: a database that is restored from a backup gives the same ones out again. The epoch
    is drawn at random by every controller when it starts, and stays with the attempts that it makes.
    """

    job_id: int
    attempt: int
    """From 1 on."""
    epoch: str = ""
    """Part of file names, so only letters and digits."""

    def __post_init__(self) -> None:
        if self.job_id < 0 or self.attempt < 0:
            raise InputError(f"job {self.job_id}, attempt {self.attempt}: expected numbers from 0 on")
        if self.epoch and not (self.epoch.isascii() and self.epoch.isalnum()):
            raise InputError(f"epoch {self.epoch!r:.40}; allowed are letters and digits")

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.epoch}" if self.epoch else f"{self.job_id}.{self.attempt}"

    @property
    def in_words(self) -> str:
        """For messages to people, who know no epochs."""
        return f"job {self.job_id}, attempt {self.attempt}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        """An attempt from the text that `str` gives."""
        job_id, _, rest = text.partition(".")
        attempt, _, epoch = rest.partition(".")
        if not (_is_number(job_id) and _is_number(attempt)):
            raise InputError(f"{text!r:.60} is no attempt", hint="for example 17.2 or 17.2.9f3c01ab")
        return cls(int(job_id), int(attempt), epoch)


@dataclass(frozen=True, slots=True, order=True)
class LaunchId:
    """One process tree of an attempt on a node."""

    attempt: AttemptId
    number: int = 0
    """0, and one more with each restart by the node's agent."""

    def __str__(self) -> str:
        return f"{self.attempt}@{self.number}"

    @property
    def next(self) -> LaunchId:
        """The launch after this one."""
        return LaunchId(self.attempt, self.number + 1)

    @classmethod
    def parse(cls, text: str) -> LaunchId:
        """A launch from the text that `str` gives."""
        attempt, at, number = text.rpartition("@")
        if not at or not _is_number(number):
            raise InputError(f"{text!r:.60} is no launch", hint="for example 17.2.9f3c01ab@0")
        return cls(AttemptId.parse(attempt), int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19
