"""Test frameworks, each read through a machine-readable report."""
