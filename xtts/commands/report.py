"""`xtts report`: a run as an HTML page."""

from xtts.commands.command import Command, add_run_folder, require_folder


def report(*, folder: str) -> int:
    """Write report.html into a run's folder."""
    require_folder(folder, "xtts run")

    from xtts.reporting.report import write_report

    print(write_report(folder))
    return 0


COMMAND = Command(
    "report",
    "Write a run's report.html: the curves, pictures and samples of a finished, failed or unfinished run.",
    add_run_folder,
    report,
)
