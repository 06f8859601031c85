"""Fixtures for the tests of the report."""

from tests.made_up_results import make_result

__all__ = ["make_result"]
