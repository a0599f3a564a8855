"""Settings to speak with: from a Coqui config.json into an import's folder, and from there into a run's."""

import json

import attrs
import pytest
from published import GOLDEN

from xtts.commands import main
from xtts.weights.safetensors_file import WeightsError
from xtts.weights.speaking_settings import SPEAKING, SpeakingSettings, read_config, read_speaking, write_speaking

SETTINGS = {"temperature": 0.6, "repetition_penalty": 3, "top_k": 20, "gpt_cond_len": 12, "sound_norm_refs": True}


def config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({"model": "xtts", **values}), encoding="utf-8")
    return path


def test_the_published_config_gives_the_defaults():
    """A folder without settings speaks like one that was imported with XTTS-v2's config.json."""
    assert read_config(GOLDEN / "config.json") == SpeakingSettings()


def test_settings_that_a_config_does_not_state_are_those_of_its_class(tmp_path):
    """As the public implementation reads such a file, not as XTTS-v2's own config states them."""
    assert read_config(config(tmp_path)) == SpeakingSettings(
        temperature=0.85, repetition_penalty=2.0, gpt_cond_len=12, gpt_cond_chunk_len=4, max_ref_len=10
    )


def test_an_import_keeps_the_settings_beside_the_model(tmp_path, capsys):
    """The file is readable JSON, under the names of the config; what is printed names them."""
    folder = tmp_path / "v2"
    flags = ["--config", str(config(tmp_path, **SETTINGS))]
    assert main.main(["import", str(GOLDEN / "model.pth"), str(folder), *flags]) == 0
    assert "temperature 0.6, top-k 20" in capsys.readouterr().out
    kept = json.loads((folder / SPEAKING).read_text(encoding="utf-8"))
    assert {name: kept[name] for name in SETTINGS} == SETTINGS
    assert attrs.asdict(read_speaking(folder)) == kept


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"temperature": 0}, "temperature = 0: expected a number from 0.01 to 10"),
        ({"temperature": "warm"}, 'temperature = "warm": expected a number'),
        ({"top_k": 2.5}, "top_k = 2.5: expected a whole number from 1 to 1e\\+06"),
        ({"gpt_cond_chunk_len": 0}, "gpt_cond_chunk_len = 0: expected a whole number from 1 to 600"),
        ({"sound_norm_refs": 1}, "sound_norm_refs = 1: expected true or false"),
        ({"top_p": float("nan")}, "top_p = NaN: expected a number from 0.001 to 1"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(tmp_path, values, words):
    """The error names the file, the setting and its range, and nothing is imported."""
    path = config(tmp_path, **values)
    with pytest.raises(WeightsError, match=f"config.json: {words}.*; correct it, or import without --config"):
        read_config(path)
    assert main.main(["import", str(GOLDEN / "model.pth"), str(tmp_path / "out"), "--config", str(path)]) == 1
    assert not (tmp_path / "out").exists()


def test_a_misspelt_setting_in_the_folder_is_refused(tmp_path):
    """The file is meant to be edited, so a name that is not a setting is an error that lists those that are."""
    write_speaking(tmp_path, SpeakingSettings())
    (tmp_path / "model.json").write_text("{}")
    table = json.loads((tmp_path / SPEAKING).read_text(encoding="utf-8"))
    (tmp_path / SPEAKING).write_text(json.dumps({**table, "temprature": 1}), encoding="utf-8")
    with pytest.raises(WeightsError, match="there is no setting temprature; the settings are temperature, length_pen"):
        read_speaking(tmp_path)
    (tmp_path / SPEAKING).write_text("[]", encoding="utf-8")
    with pytest.raises(WeightsError, match="not a table of settings"):
        read_speaking(tmp_path)
