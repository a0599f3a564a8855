"""No-op writers for workers other than the chief, which alone writes a run's folder."""

from pathlib import Path
from typing import Any, Dict, List, Optional

from xtts.reporting.journal import Journal
from xtts.training.checkpoint import Checkpoints, TrainingState


class NullJournal(Journal):
    """A journal that stays empty."""

    def resume(self, stage: str, step: int) -> int:
        return 0

    def summary(self) -> Dict[str, Any]:
        return {}

    def _append(self, name: str, line: Dict[str, Any]) -> None:
        """Nothing: the chief writes it."""

    def _write(self, name: str, text: str) -> None:
        """Nothing: the chief writes it."""

    def _read(self, name: str, stage: Optional[str]) -> List[Dict[str, Any]]:
        return []


class NullCheckpoints(Checkpoints):
    """Checkpoints that only the chief saves."""

    def save(self, state: TrainingState, loss: Optional[float] = None) -> Optional[Path]:
        return self.folder
