"""Decisions: `decide(view) -> plan`.

A policy stack joins one stage each for sizing (how many GPUs), ordering (who next), sharing (beside whom) and placing
(which GPUs). No I/O, no clock and no hidden randomness: a stack is a deterministic function of the views it was shown.
"""
