"""Whether a machine has a GPU, by its driver and by what is hidden."""

from xtts.planning import machine


def test_a_hidden_gpu_does_not_count(monkeypatch):
    """CUDA_VISIBLE_DEVICES hides GPUs from TensorFlow, and from the choice of shapes."""
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert machine.has_gpu_driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not machine.has_gpu_driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not machine.has_gpu_driver()
