"""Waits for jobs to end, at no cost while they run, or for somebody to call."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Hashable


class ExitWatch:
    """One thread waits; any thread may add jobs, take them out, or call."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._calls, select.EPOLLIN)
        self._descriptors: dict[Hashable, int] = {}

    def add(self, key: Hashable, descriptor: int) -> None:
        """Wait for this one too; its descriptor is ours from now on."""
        self.drop(key)
        self._descriptors[key] = descriptor
        # Once: what has ended stays readable, and whoever waits would never rest.
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)

    def drop(self, key: Hashable) -> None:
        """It has ended, and that is known."""
        descriptor = self._descriptors.pop(key, None)
        if descriptor is not None:
            os.close(descriptor)  # which takes it out of the waiting as well

    def wait(self, most_s: float) -> bool:
        """Until a job ends (then True), a call, or so long."""
        found = {descriptor for descriptor, _ in self._epoll.poll(max(most_s, 0.0))}
        if self._calls in found:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._calls)
        return bool(found - {self._calls})

    def call(self) -> None:
        """Wake whoever waits."""
        with contextlib.suppress(OSError):  # closed, or called more often than anybody could count
            os.eventfd_write(self._calls, 1)

    def close(self) -> None:
        """Let go of all descriptors."""
        for key in list(self._descriptors):
            self.drop(key)
        self._epoll.close()
        os.close(self._calls)
