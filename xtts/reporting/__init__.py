"""What happened in a run: its journal, figures on the way, and the report."""
