"""What the workers beside the chief have in place of what writes a run's folder: the same calls come in, nothing goes
out. The chief writes for all.
"""

from pathlib import Path
from typing import Any, Dict, List, Optional

from xtts.reporting.journal import Journal
from xtts.training.checkpoint import Checkpoints, TrainingState


class NullJournal(Journal):
    """A journal that is empty whatever is noted."""

    def resume(self, stage: str, step: int) -> int:
        return 0

    def summary(self) -> Dict[str, Any]:
        return {}

    def _append(self, name: str, line: Dict[str, Any]) -> None:
        """The chief's has it."""

    def _write(self, name: str, text: str) -> None:
        """The chief's has it."""

    def _read(self, name: str, stage: Optional[str]) -> List[Dict[str, Any]]:
        return []


class NullCheckpoints(Checkpoints):
    """Checkpoints that the chief saves."""

    def save(self, state: TrainingState, loss: Optional[float] = None) -> Optional[Path]:
        return self.folder
