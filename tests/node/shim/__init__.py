"""Tests of the shim against a stub driver; none needs a GPU."""
