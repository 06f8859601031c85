"""Placements: which GPUs a job has. A placement is a tuple of GPU numbers in ascending order; `()` is none."""

from __future__ import annotations

Placement = tuple[int, ...]
NOWHERE: Placement = ()
