"""Programs that take turns, each of which measures itself.

Each is a process of its own, in an environment of its own perhaps. It writes a JSON line when it is ready, one for
every turn it is given, and, given none any more, a last one. Whatever else the machine does meets all of them alike.
"""

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}


class ProgramError(Exception):
    """A program that ended before its time, with the last thing it said."""


class Program:
    """A process that does its work once when it is asked to."""

    def __init__(self, python: str, script: Path, way: str, *arguments: str) -> None:
        self.way, self._script = way, script
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the program
        self._process = subprocess.Popen(
            [python, str(script), way, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=ENVIRONMENT,
            text=True,
        )
        self.first = self._line()
        self.turns: List[Dict[str, Any]] = []
        self.end: Dict[str, Any] = {}

    def turn(self, asked: str = "") -> Dict[str, Any]:
        """One more; what is asked of it is up to the script."""
        self._process.stdin.write(f"{asked}\n")
        self._process.stdin.flush()
        self.turns.append(self._line())
        return self.turns[-1]

    def finish(self) -> None:
        self._process.stdin.close()
        self.end = self._line()
        self._process.wait()
        self._errors.close()

    def median(self, key: str) -> float:
        return statistics.median(turn[key] for turn in self.turns)

    def _line(self) -> Dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace").strip().splitlines() or ["and said nothing"]
            raise ProgramError(f"{self._script.name} {self.way} ended before its time: {said[-1]}")
        return json.loads(line)


def in_rounds(pythons: Mapping[str, str], script: Path, arguments: Sequence[str], rounds: int) -> Dict[str, Program]:
    """A program for each way, by the Python that runs it; after so many turns of each, one after the other."""
    programs = {way: Program(python, script, way, *arguments) for way, python in pythons.items()}
    for _ in range(rounds):
        for program in programs.values():
            program.turn()
    for program in programs.values():
        program.finish()
    return programs
