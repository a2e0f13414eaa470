"""Measures load generators side by side; see perf/README.md. Python's standard library only."""
