import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import ljspeech, record, tone

from xtts.corpus import index, lengths, stats
from xtts.corpus.lengths import Lengths
from xtts.recipe.schema import AudioSection


@pytest.fixture
def figures(tmp_path):
    """Three utterances of 1, 2 and 3 seconds by two speakers in two languages, and one set aside."""
    ljspeech(tmp_path, [])
    (tmp_path / "metadata.csv").write_text(
        "a|x|one|sara|fa\nb|x|three|سارا|fa\nc|x|eleven|sara|en\ngone|x|x\n", encoding="utf-8"
    )
    record(tmp_path / "wavs" / "a.wav", tone(22050))
    record(tmp_path / "wavs" / "b.wav", tone(2 * 22050))
    record(tmp_path / "wavs" / "c.flac", tone(3 * 48000, 2), 48000)
    found = index.read_corpus(tmp_path)
    found, table = lengths.measure_lengths(found, lambda text, _: list(text), lambda *_: True, AudioSection())
    return stats.corpus_statistics(found, table)


def test_minutes_are_by_speaker_language_and_rate(figures):
    """Minutes add up over all, and over each speaker and language, the largest first."""
    assert figures.minutes == pytest.approx(0.1)
    assert list(figures.speakers) == ["sara", "سارا"]
    assert figures.speakers["sara"] == pytest.approx(4 / 60)
    assert figures.languages == {"fa": pytest.approx(0.05), "en": pytest.approx(0.05)}
    assert figures.sample_rates == {22050: 2, 48000: 1}
    assert figures.rejected == {"file missing": 1}


def test_spreads_are_exact(figures):
    """Minimum, mean, maximum and percentiles are those of the lengths."""
    assert (figures.text.min, figures.text.p50, figures.text.max) == (3, 5, 6)
    assert figures.text.mean == pytest.approx(14 / 3)
    assert (figures.mel.min, figures.mel.p50, figures.mel.max) == (87, 173, 259)
    assert figures.seconds.max == pytest.approx(3)


def test_spread_has_the_percentiles_asked_for():
    """On 0 to 100 every percentile is itself."""
    assert stats.distribution(np.arange(101)) == (0, 50, 50, 90, 95, 99, 100)
    assert stats.distribution(np.zeros(0, np.int32)) == (0,) * 7


def test_fixed_padding_counts_what_is_lost_and_wasted():
    """Utterances beyond either limit are lost; of the others' frames and tokens the rest is padding."""
    table = Lengths(*(np.array(column, np.int32) for column in ([100, 200, 201, 10], [800, 400, 10, 801], [0] * 4)))
    fixed = stats.fixed_padding(table, 200, 800)
    assert (fixed.lost, fixed.lost_share) == (2, 0.5)
    assert fixed.text_padding == pytest.approx(0.25)
    assert fixed.mel_padding == pytest.approx(0.25)


def test_fixed_padding_that_fits_nothing_wastes_nothing():
    """Where every utterance is lost there is nothing to pad."""
    table = Lengths(*(np.array([900], np.int32) for _ in range(3)))
    assert stats.fixed_padding(table, 200, 800) == (200, 800, 1, 1.0, 0.0, 0.0)


def test_json_holds_every_figure(figures):
    """The JSON is JSON's own types, and the same figures."""
    read = json.loads(json.dumps(figures.as_json()))
    assert read["utterances"] == 3
    assert read["mel"]["p50"] == 173
    assert read["sample_rates"] == {"22050": 2, "48000": 1}
    assert read["fixed_padding"]["text_length"] == 200
    assert sum(read["mel_bars"]["counts"]) == 3
    assert read["rejected"] == {"file missing": 1}
    assert read["format"] == "ljspeech"


def test_text_says_it_to_a_person(figures):
    """The page names the layout and why, the figures, the speakers and what was set aside."""
    page = figures.as_text()
    for words in (
        "ljspeech: metadata.csv has no header",
        "3 utterances, 0.1 minutes, 2 speakers, 2 languages (en, fa), 22,050 Hz (2), 48,000 Hz (1); 1 set aside",
        "padded to 200 tokens and 800 frames",
        "file missing",
        "سارا",
        "█",
    ):
        assert words in page


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_text_is_drawn_in_characters_the_terminal_has(figures, encoding):
    """A terminal without block characters gets the same page in ASCII, and no error."""
    page = figures.as_text(encoding)
    page.encode(encoding)
    assert "#" in page
    assert "3 utterances" in page


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
def test_every_length_is_in_one_bar(values):
    """Bars touch, are few, and count each value exactly once in the bar that holds it."""
    bars = stats.bin_counts(np.array(values, np.int32))
    assert len(bars.counts) <= stats.MAX_BARS
    assert bars.counts == np.histogram(values, bars.edges)[0].tolist() or bars.edges[-1] in values
    assert sum(bars.counts) == len(values)
    assert bars.edges[0] <= min(values) <= max(values) < bars.edges[-1]


def test_bars_are_as_long_as_their_counts():
    """The longest bar has the full width, half a count half of it, a single one is seen, and none is nothing."""
    lines = stats.draw_histogram(stats.Bars([0, 10, 20, 30, 40], [1000, 500, 1, 0]), blocks=True).splitlines()
    assert [line.count("█") for line in lines] == [stats.BAR_WIDTH, stats.BAR_WIDTH // 2, 0, 0]
    assert "▏ 1" in lines[2]
    ascii_lines = stats.draw_histogram(stats.Bars([0, 10, 20, 30, 40], [1000, 500, 1, 0]), blocks=False).splitlines()
    assert [line.count("#") for line in ascii_lines] == [stats.BAR_WIDTH, stats.BAR_WIDTH // 2, 1, 0]
    assert ascii_lines[0].isascii()
