"""Reporting: the journal of a run, live figures, and the report."""
