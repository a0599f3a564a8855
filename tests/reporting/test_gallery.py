"""The gallery shows samples to hear and see, within what a page can hold."""

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
    """The files that are in the page, by the first word that was written into them."""
    return [base64.b64decode(data).split()[0].decode() for data in re.findall(r"audio/wav;base64,([\w+/=]+)", html)]


def test_samples_are_in_the_page(folder):
    """Files are within the page, byte for byte, with their kind and step."""
    html = gallery.gallery([sample(folder, 1200)], folder)
    (wave,) = re.findall(r'<audio controls title="spoken, step 1,200" src="data:audio/wav;base64,([\w+/=]+)"', html)
    assert base64.b64decode(wave) == (folder / "samples" / "gpt-1200-spoken.wav").read_bytes()
    assert html.count("data:image/png;base64,") == 1


def test_text_runs_as_its_letters_do(folder):
    """Persian is shown from the right; markup in a text is text."""
    html = gallery.gallery([sample(folder, 1, text="سلام <b>")], folder)
    assert '<p dir="auto">سلام &lt;b&gt;</p>' in html


def test_the_newest_and_a_few_through_time_are_shown(folder):
    """Of a recording the newest, of what is learnt the first, the last and between; kinds in their order."""
    samples = [sample(folder, step) for step in range(1, 12)]
    samples += [sample(folder, step, "codec", stage="codec") for step in (1, 2, 3)]
    samples += [sample(folder, step, "recording", stage="codec") for step in (1, 2, 3)]
    chosen = gallery.choose(samples)["hello"]
    shown = [(take["kind"], take["step"]) for take in chosen]
    assert shown == [("recording", 3), ("codec", 1), ("codec", 3), ("spoken", 1), ("spoken", 6), ("spoken", 11)]


def test_the_newest_texts_are_shown(folder):
    """A run that speaks another sentence each time shows the last few."""
    samples = [sample(folder, step, text=f"sentence {step}") for step in range(20)]
    assert list(gallery.choose(samples)) == [f"sentence {step}" for step in range(20 - gallery.MAX_TEXTS, 20)]


def test_a_page_does_not_grow_without_end(folder, monkeypatch):
    """What no longer fits is a link to the file; the newest sample is in the page."""
    monkeypatch.setattr(gallery, "MAX_BYTES", 2500)
    html = gallery.gallery([sample(folder, step, size=1000) for step in (1, 2, 3)], folder)
    assert embedded(html) == ["gpt-3-spoken"]
    assert 'src="samples/gpt-1-spoken.wav"' in html


def test_files_outside_the_run_are_never_shown(folder):
    """Paths that lead out of the folder, by dots, absolutely or by a link, or of another type, are not opened."""
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
    """A sample whose file is gone says so, and a line that says little is a card that says little."""
    taken = sample(folder, 1)
    (folder / "samples" / "gpt-1-spoken.wav").unlink()
    html = gallery.gallery([taken, {}], folder)
    assert "samples/gpt-1-spoken.wav is no longer there" in html
    assert html.count("<article") == 2
    assert gallery.gallery([], folder) == ""
