"""migrate: every key of a MyXTTS configuration is taken over or listed, and the recipe loads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts.recipe import loading, myxtts

yaml = pytest.importorskip("yaml")

OLD = """
model:
  decoder_dim: 1024
  n_mels: 80
training:
  epochs: 1000
  learning_rate: 1e-4
  warmup_steps: 4000
  scheduler: noam
  mel_loss_weight: 2.5
  checkpoint_dir: ./checkpoints
data:
  dataset_path: ./data/ljspeech
  val_split: 0.1
  batch_size: 56
  mixed_precision: true
  preprocessing_mode: precompute
  pad_to_fixed_length: true
  data_gpu: 0
  model_gpu: 1
  prefetch_buffer_size: 16
  favourite_colour: blue
"""


@pytest.fixture
def migrated(tmp_path):
    """Migrate a text; what became of it, and the recipe as it loads."""

    def made(text):
        path, out = tmp_path / "config.yaml", tmp_path / "out.toml"
        path.write_text(text, encoding="utf-8")
        done = myxtts.write_migrated(path, out)
        return done, loading.load_recipe(out)

    return made


def test_a_configuration_becomes_a_recipe(migrated):
    """Names are new, words are translated, and text that YAML takes for no number is one."""
    done, recipe = migrated(OLD)
    assert recipe.data.train == "./data/ljspeech"
    assert (recipe.data.features, recipe.data.pad_to_fixed_length, recipe.data.validation_share) == (
        "cached",
        True,
        0.1,
    )
    assert (recipe.train.learning_rate, recipe.train.batch_size, recipe.train.precision) == (1e-4, 56, "float16")
    assert (recipe.train.schedule, recipe.train.warmup_steps, recipe.train.steps) == ("noam", 4000, myxtts.STEPS)
    assert (recipe.devices.data_gpu, recipe.devices.model_gpu, recipe.devices.buffer_size) == (0, 1, 16)
    assert (recipe.run.folder, recipe.model.size) == ("./checkpoints", "normal")
    left = {one.key: one.why for one in done.left}
    assert set(left) == {"model.decoder_dim", "training.epochs", "training.mel_loss_weight", "data.favourite_colour"}
    assert left["data.favourite_colour"].startswith("not known")
    assert left["training.epochs"].startswith("a recipe counts steps")


def test_every_old_key_goes_to_a_setting_that_there_is():
    """No name leads nowhere, and none that is taken over has a reason not to be."""
    known = {
        f"{section}.{name}"
        for section, kind in loading.json_schema()["properties"].items()
        for name in kind["properties"]
    }
    assert {taken.key for taken in myxtts.TAKEN.values()} <= known


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("data: {batch_size: -3}", "data.batch_size", "train.batch_size: -3 is out of range; write a whole number"),
        ("data: {batch_size: many}", "data.batch_size", "train.batch_size: expected a whole number"),
        ("training: {scheduler: step}", "training.scheduler", '"step" has no counterpart; train.schedule may be'),
        ("data: {data_gpu: 1, model_gpu: 1}", "data.data_gpu", "devices.data_gpu: data_gpu and model_gpu are both"),
        ("data: {language: {en: 1}}", "data.language", "data.language: expected text"),
        ("data: {buffer_size: 8, prefetch_buffer_size: 16}", "data.prefetch_buffer_size", "devices.buffer_size was"),
    ],
)
def test_what_a_recipe_would_refuse_is_listed_with_the_reason(migrated, text, key, why):
    """The default holds instead, and the recipe loads."""
    done, _ = migrated(text)
    assert [one.why[: len(why)] for one in done.left if one.key == key] == [why]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1, 2", "config.yaml:2: this is not YAML"),
        ("", "the file holds no settings"),
        ("- 1\n- 2", "the file holds no settings"),
        ("a: !!python/object/apply:os.system [ls]", "config.yaml:1: this is not YAML"),
    ],
)
def test_what_is_no_configuration_is_a_sentence(xtts, tmp_path, text, sentence):
    """Exit status 2, one line, and nothing is written."""
    (tmp_path / "config.yaml").write_text(text + "\n")
    done = xtts("migrate", "config.yaml")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "config.toml").exists()


def test_a_recipe_that_is_there_is_not_written_over(xtts, tmp_path):
    """The verb names the recipe after the YAML, and refuses to write it twice."""
    (tmp_path / "config.yaml").write_text(OLD)
    first = xtts("migrate", "config.yaml")
    assert "config.toml; look at it" in first.stdout
    second = xtts("migrate", "config.yaml")
    assert second.returncode == 2
    assert "config.toml: this is there already" in second.stderr
    assert xtts("migrate", "nothing.yaml").stderr == "nothing.yaml: there is no such file; check the path\n"


@given(
    st.dictionaries(
        st.sampled_from([*myxtts.TAKEN, "data.unheard_of", "training.epochs"]),
        st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.none(), st.lists(st.integers())),
        min_size=1,
    )
)
def test_whatever_it_says_the_recipe_loads(tmp_path_factory, values):
    """Any value under any key: what comes out is a recipe, and nothing that was set is missing from both lists."""
    sections = {}
    for name, value in values.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(yaml.safe_dump(sections, allow_unicode=True), encoding="utf-8")
    done = myxtts.convert(path)
    loading.parse_recipe(done.recipe())
    told = {old for old, _ in done.taken} | {one.key for one in done.left}
    unset = {name for name, value in values.items() if value is None or value == ""}
    same = {name for name in values if name in myxtts.TAKEN and _has_twin(name, values)}
    assert set(values) - unset - same <= told


def _has_twin(name, values):
    """Whether another key that is stated goes to the same setting: an equal value need not be told twice."""
    return any(
        other != name and myxtts.TAKEN[other].key == myxtts.TAKEN[name].key for other in values if other in myxtts.TAKEN
    )
