"""Migration from MyXTTS: every key is converted or listed, and the recipe loads."""

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
    """Migrate a text; gives the result and the loaded recipe."""

    def made(text):
        path, out = tmp_path / "config.yaml", tmp_path / "out.toml"
        path.write_text(text, encoding="utf-8")
        done = myxtts.write_migrated(path, out)
        return done, loading.load_recipe(out)

    return made


def test_a_configuration_becomes_a_recipe(migrated):
    """Keys are renamed, values are translated, and numbers that YAML reads as text are converted."""
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


def test_every_old_key_is_migrated_to_an_existing_setting():
    """Every migrated key refers to a setting of the recipe."""
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
def test_an_unacceptable_value_is_listed_with_the_reason(migrated, text, key, why):
    """The default is used instead, and the recipe loads."""
    done, _ = migrated(text)
    assert [one.why[: len(why)] for one in done.left if one.key == key] == [why]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1, 2", "config.yaml:2: this is not YAML"),
        ("", "the file has no settings"),
        ("- 1\n- 2", "the file has no settings"),
        ("a: !!python/object/apply:os.system [ls]", "config.yaml:1: this is not YAML"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(xtts, tmp_path, text, sentence):
    """The status is 2 with one line of output, and nothing is written."""
    (tmp_path / "config.yaml").write_text(text + "\n")
    done = xtts("migrate", "config.yaml")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "config.toml").exists()


def test_an_existing_recipe_is_not_overwritten(xtts, tmp_path):
    """The recipe is named after the YAML file, and a second migration is refused."""
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
def test_any_migrated_recipe_loads(tmp_path_factory, values):
    """Whatever the keys and values, the result is a recipe, and every key is converted or listed."""
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
    """Whether another given key maps to the same setting; an equal value is then listed once."""
    return any(
        other != name and myxtts.TAKEN[other].key == myxtts.TAKEN[name].key for other in values if other in myxtts.TAKEN
    )
