"""The gallery shows audio and mel samples within a size limit for the page."""

import base64
import re

import pytest

from xtts.reporting import gallery


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "samples").mkdir()
    return tmp_path


def sample(folder, step, kind="spoken", text="hello", size=100, stage="gpt"):
    name = f"{stage}-{step}-{kind}"
    for ending in ("wav", "png"):
        (folder / "samples" / f"{name}.{ending}").write_bytes(f"{name} {ending} ".encode().ljust(size, b"."))
    paths = {"wav": f"samples/{name}.wav", "picture": f"samples/{name}.png"}
    return {"stage": stage, "step": step, "kind": kind, "text": text, **paths}


def embedded(html):
    """The files embedded in the page, by the first word written into them."""
    return [base64.b64decode(data).split()[0].decode() for data in re.findall(r"audio/wav;base64,([\w+/=]+)", html)]


def test_samples_are_embedded_in_the_page(folder):
    """Files are embedded byte for byte, with their kind and step."""
    html = gallery.gallery([sample(folder, 1200)], folder)
    (wave,) = re.findall(r'<audio controls title="spoken, step 1,200" src="data:audio/wav;base64,([\w+/=]+)"', html)
    assert base64.b64decode(wave) == (folder / "samples" / "gpt-1200-spoken.wav").read_bytes()
    assert html.count("data:image/png;base64,") == 1


def test_text_has_the_direction_of_its_script(folder):
    """Persian is displayed from right to left; markup in a text is escaped."""
    html = gallery.gallery([sample(folder, 1, text="سلام <b>")], folder)
    assert '<p dir="auto">سلام &lt;b&gt;</p>' in html


def test_the_newest_and_a_few_earlier_samples_are_shown(folder):
    """Of a recording the newest is shown; of outputs the first, one between and the last; kinds are in order."""
    samples = [sample(folder, step) for step in range(1, 12)]
    samples += [sample(folder, step, "codec", stage="codec") for step in (1, 2, 3)]
    samples += [sample(folder, step, "recording", stage="codec") for step in (1, 2, 3)]
    chosen = gallery.choose(samples)["hello"]
    shown = [(take["kind"], take["step"]) for take in chosen]
    assert shown == [("recording", 3), ("codec", 1), ("codec", 3), ("spoken", 1), ("spoken", 6), ("spoken", 11)]


def test_the_newest_texts_are_shown(folder):
    """A run with a new sentence each time shows the last few."""
    samples = [sample(folder, step, text=f"sentence {step}") for step in range(20)]
    assert list(gallery.choose(samples)) == [f"sentence {step}" for step in range(20 - gallery.MAX_TEXTS, 20)]


def test_the_page_has_a_size_limit(folder, monkeypatch):
    """Files beyond the limit are linked; the newest sample is embedded."""
    monkeypatch.setattr(gallery, "MAX_BYTES", 2500)
    html = gallery.gallery([sample(folder, step, size=1000) for step in (1, 2, 3)], folder)
    assert embedded(html) == ["gpt-3-spoken"]
    assert 'src="samples/gpt-1-spoken.wav"' in html


def test_files_outside_the_run_are_never_shown(folder):
    """Paths that leave the folder, by "..", absolute or by symlink, and files of other types are not opened."""
    (folder.parent / "secret.wav").write_bytes(b"secret")
    (folder / "samples" / "notes.txt").write_bytes(b"secret")
    (folder / "samples" / "link.wav").symlink_to(folder.parent / "secret.wav")
    names = [
        "../secret.wav",
        str(folder.parent / "secret.wav"),
        "samples/notes.txt",
        "samples/link.wav",
        "\0",
        "x" * 9999,
    ]
    for name in names:
        html = gallery.gallery([{"kind": "spoken", "text": "", "wav": name}], folder)
        assert "data:" not in html
        assert "no longer there" in html


def test_missing_files_and_fields_are_no_error(folder):
    """A missing file is reported on its card, and a line with few fields gives a card with few entries."""
    taken = sample(folder, 1)
    (folder / "samples" / "gpt-1-spoken.wav").unlink()
    html = gallery.gallery([taken, {}], folder)
    assert "samples/gpt-1-spoken.wav is no longer there" in html
    assert html.count("<article") == 2
    assert gallery.gallery([], folder) == ""
