"""Programs that take turns, each of which measures itself.

Each is a process, possibly with its own Python environment. It writes a JSON line when it is ready, one for every turn,
and a last one at the end of its input. Taking turns, all are affected alike by other load on the machine.
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
    """A program that ended too early; the message has the last line of its stderr."""


class Program:
    """A process that does its work once for every turn."""

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
        """One more turn; `asked` is passed to the script."""
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
    """Run a program for each way, with its Python, for `rounds` turns each, alternately; returns the programs."""
    programs = {way: Program(python, script, way, *arguments) for way, python in pythons.items()}
    for _ in range(rounds):
        for program in programs.values():
            program.turn()
    for program in programs.values():
        program.finish()
    return programs
