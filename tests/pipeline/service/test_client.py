"""Batches from the tf.data service: every utterance once an epoch, in the plan's order, whatever happens to workers."""

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path

import attrs
import numpy as np
import pytest
import small_run
import tensorflow as tf
from recordings import record
from run_processes import FORKS, Runs, has_stepped, losses, make_corpus
from small import use_small
from speech_corpus import AUDIO, STATS, make, speech

from xtts import compat
from xtts.model.layers import variables_to_constants
from xtts.model.mel import transform_for
from xtts.pipeline.features import feature_functions
from xtts.pipeline.prefetcher import Prefetcher
from xtts.pipeline.recordings import Recordings, raw_copies
from xtts.pipeline.service.client import BatchStream, LocalFallback, Service, ServiceWorker, connect_service
from xtts.pipeline.service.manifest import ManifestWriter
from xtts.pipeline.service.servers import Patience, ServiceError

LIMIT = 900  # seconds: a guard against hanging, for the slowest machines
PATIENT = Patience(first=LIMIT, silence=LIMIT, overtaken=LIMIT, answer=LIMIT)  # no worker is dropped for being slow
HASTY = Patience(first=LIMIT, silence=1.0, overtaken=0.5, answer=LIMIT)


class Servers:
    """Dispatchers and workers as subprocesses."""

    def __init__(self, folder):
        self._folder, self.processes = folder, []

    def start(self, *arguments):
        log = self._folder / f"{len(self.processes)}.log"
        process = FORKS.Process(target=small_run.main, args=([*arguments, "--json"], str(self._folder), str(log)))
        process.start()
        self.processes.append(process)
        until = time.monotonic() + LIMIT
        while not (log.exists() and '"address"' in log.read_text()):
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < until
            time.sleep(0.01)
        ready = next(line for line in log.read_text().splitlines() if '"address"' in line)
        return f"grpc://127.0.0.1:{json.loads(ready)['address'].rpartition(':')[2]}"

    def end(self):
        for process in self.processes:
            os.kill(process.pid, signal.SIGTERM)
        for process in self.processes:
            process.join(LIMIT)
        return [process.exitcode for process in self.processes]


@pytest.fixture
def servers(tmp_path):
    found = Servers(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        process.join()


@pytest.fixture
def made(tmp_path, monkeypatch):
    use_small(monkeypatch)
    return make(tmp_path / "corpus")


def served(made, servers, logged, workers=2):
    """The service of a dispatcher with this many workers, connected."""
    target = servers.start("data-dispatcher")
    for _ in range(workers):
        servers.start("data-worker", "--dispatcher", target)
    recording = made.part.corpus.utterances[0].path
    return connect_service(
        target, Path(made.recipe.run.folder) / "service", recording, AUDIO.sample_rate, logged.append, workers, PATIENT
    )


def codec_makes():
    return {"mel": ("waves", feature_functions(AUDIO, STATS, None, transform_for("CPU"))["mel"])}


def gpt_makes(made):
    make = feature_functions(AUDIO, STATS, variables_to_constants(made.model), transform_for("CPU"))
    return {"codes": ("waves", make["codes"]), "reference": ("reference_waves", make["reference_mel"])}


def batches(order, source, steps, during=lambda step: None, close=lambda: None):
    """The batches of a prefetcher, as arrays."""
    found = []
    with Prefetcher(order, source, 0, steps, buffer_size=4, readers=2, on_close=close) as feed:
        for work in feed:
            during(work.step)
            found.append({name: np.asarray(array) for name, array in work.batches[0].items()})
    return found


def utterances(found, made):
    """The utterance of each row, by its audio: the one with the nearest mel."""
    source = made.codec(is_random=False)
    every = [np.asarray(source.finish(source.read(some, 0))["mel"]) for some in zip(made.codec_order().batches(0))]
    order = [int(place) for one in made.codec_order().batches(0) for place in one.utterances]
    rows = np.concatenate(every)
    rows = rows[np.abs(rows).sum(axis=(1, 2)) > 0]
    mels = np.concatenate([one["mel"][one["lengths"] > 0] for one in found])
    return [order[int(np.argmin(np.abs(rows - one).sum(axis=(1, 2))))] for one in mels]


def is_near(ours, theirs):
    return len(ours) == len(theirs) and all(
        set(one) == set(other) and all(np.allclose(one[name], other[name], atol=2e-5) for name in one)
        for one, other in zip(ours, theirs)
    )


def is_same(ours, theirs):
    return len(ours) == len(theirs) and all(
        set(one) == set(other) and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(ours, theirs)
    )


def test_two_workers_deliver_every_utterance_once_an_epoch(made, servers):
    """Two epochs contain each utterance twice, by its audio, in the plan's order; servers end on request."""
    logged = []
    service = served(made, servers, logged)
    order, source = made.codec_order(), made.codec(is_random=False)
    steps = 2 * order.batches_per_epoch
    assert len(service.workers) == 2
    assert "2 workers" in logged[0]

    stream = service.source(order, source, range(steps), codec_makes())
    found = batches(order, stream, steps, close=stream.close)

    for epoch in range(2):
        own = found[epoch * order.batches_per_epoch : (epoch + 1) * order.batches_per_epoch]
        assert utterances(own, made) == [int(at) for one in order.batches(epoch) for at in one.utterances]
    assert is_near(found, batches(order, source, steps))
    assert logged[1:] == []  # all of it came from the workers
    assert list(service.folder.glob("batches-*")) == []
    assert servers.end() == [0, 0, 0]


def test_a_batch_behind_those_of_a_faster_worker_is_awaited(tmp_path, monkeypatch):
    """However many later batches arrive first, none is dropped."""
    count = 100
    arriving = [{"number": tf.constant(n), "mel": tf.constant(n)} for n in [*range(1, count), 0]]
    monkeypatch.setattr("xtts.compat.service.by_any", lambda *arguments: iter(arriving))
    logged = []
    service = Service("grpc://nowhere:1", [ServiceWorker("a", "2", True)], tmp_path, 8000, logged.append, PATIENT)
    stream = BatchStream(service, range(count), ManifestWriter(tmp_path / "batches", range(count), str), {})
    assert [int(stream.take(number)["mel"]) for number in range(count)] == list(range(count))
    stream.close()
    assert logged == []


@pytest.mark.parametrize("spared", [1, pytest.param(0, marks=pytest.mark.long)], ids=["one of two", "both"])
def test_a_killed_worker_loses_and_repeats_no_utterance(made, servers, spared):
    """After kill -9 in the middle of an epoch the batches are bit-identical to those of healthy workers."""
    logged = []
    service = served(made, servers, logged)
    order, source, steps = made.plan.order, made.gpt(), 60

    def fed(service, during=lambda step: None):
        stream = service.source(order, source, range(steps), gpt_makes(made))
        return batches(order, stream, steps, during, stream.close)

    def kill(step):
        if step == 7:
            for process in servers.processes[1 + spared :]:
                process.kill()

    whole = fed(service)
    assert logged[1:] == []
    assert is_same(fed(attrs.evolve(service, patience=HASTY), kill), whole)
    assert is_near(whole, batches(order, source, steps))


def test_an_unreadable_recording_is_skipped_by_name(made, servers):
    """A deleted recording leaves its row blank and is reported; the rest of its batch is unchanged."""
    service = attrs.evolve(served(made, servers, [], workers=1), patience=HASTY)
    order, source = made.codec_order(), made.codec()
    gone = made.part.corpus.utterances[5]
    Path(gone.path).unlink()
    lost = []
    steps = order.batches_per_epoch
    stream = service.source(order, source, range(steps), codec_makes())
    with Prefetcher(order, stream, 0, steps, on_lost=lambda *one: lost.append(one), on_close=stream.close) as feed:
        found = [np.asarray(work.batches[0]["lengths"]) for work in feed]
    assert [name for name, _ in lost] == [gone.id]
    assert sum(int((lengths > 0).sum()) for lengths in found) == len(made.part.lengths) - 1


def test_recordings_in_other_formats_are_copied_as_raw_samples(tmp_path, made):
    """FLAC and other sample rates become float32 samples, read exactly by the graph; other WAVs are used directly."""
    flac = record(tmp_path / "a.flac", speech(3), AUDIO.sample_rate)
    slow = record(tmp_path / "b.wav", speech(4), 6000)
    plain = made.part.corpus.utterances
    recordings = Recordings(made.part, AUDIO.sample_rate)
    recordings.utterances = [
        plain[3]._replace(path=str(flac)),
        plain[4]._replace(path=str(slow), sample_rate=6000),
        plain[5],
    ]
    waves = [recordings_wave(recordings, place) for place in range(2)]
    recordings.lengths = recordings_lengths(made.part.lengths, waves)
    copies = raw_copies(recordings, AUDIO.sample_rate, tmp_path / "raw", lambda done, total: None)
    assert sorted(copies) == [0, 1]
    for place, wave in enumerate(waves):
        assert Path(copies[place]).read_bytes() == wave.astype("<f4").tobytes()
        here = LocalFallback(AUDIO.sample_rate, {"waves": ("waves", lambda waves, lengths: waves)})
        text = f"0\t1\t{len(wave)}\t{copies[place]}\t{len(wave)}\t0\t{len(wave)}"
        assert np.array_equal(here(text)["waves"][0], wave)
        assert here(text.replace(f"\t{len(wave)}\t0\t", f"\t{len(wave) + 1}\t0\t")) is None  # it has changed since
        here.close()


def recordings_wave(recordings, place):
    from xtts.audio import wav

    return wav.load_audio(recordings.utterances[place].path, AUDIO.sample_rate)


def recordings_lengths(lengths, waves):
    samples = np.array([*(len(wave) for wave in waves), 0], lengths.samples.dtype)
    return attrs.evolve(lengths, samples=samples)


def test_a_run_with_a_service_learns_the_same(tmp_path, servers):
    """Losses equal those without a service, where features are live; slow workers cause no batch to be dropped."""
    make_corpus(tmp_path / "corpus")
    target = servers.start("data-dispatcher")
    for _ in range(2):
        servers.start("data-worker", "--dispatcher", target)
    runs = Runs(tmp_path)
    settings = ("run.stages=codec", "data.features=live", "train.steps=8", "train.validate_every=0")
    under_way = [runs.start("alone", *settings), runs.start("served", *settings, f"data.service={target}")]
    for process in under_way:
        ended = process.end()
        assert ended.status == 0, ended.output
    assert f"workers of {target}" in ended.output
    assert "did not arrive" not in ended.output
    expected, found = (losses(runs.folder(name), "codec") for name in ("alone", "served"))
    assert len(found) == 8
    assert np.allclose(found, expected, rtol=1e-5)


@pytest.mark.long
def test_a_run_with_local_workers_leaves_none_behind(tmp_path):
    """`local:2` starts two processes, which end with the run, also when it is killed."""
    make_corpus(tmp_path / "corpus")
    runs = Runs(tmp_path)
    settings = ("run.stages=codec", "train.steps=8", "train.validate_every=0", "data.service=local:2")
    ended = runs.start("served", *settings).end()
    assert ended.status == 0, ended.output
    assert "2 workers of grpc://127.0.0.1" in ended.output
    killed = runs.start("killed", *settings, "train.steps=100000").until(has_stepped("codec", 3))
    port = killed.output().partition("workers of grpc://127.0.0.1:")[2].split(":")[0]
    assert _started_for(port)
    killed.process.kill()
    until = time.monotonic() + LIMIT
    while _started_for(port):
        assert time.monotonic() < until
        time.sleep(0.1)


def _started_for(port):
    """Processes that were started as workers of a dispatcher."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"grpc://127.0.0.1:{port}" in (process / "cmdline").read_text().split("\0"):
                found.append(process.name)
    return found


def test_a_dispatcher_that_does_not_answer_is_reported(tmp_path, xtts):
    """The message has the command that would start one; workers, wrong addresses and ports in use are reported, too."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]  # nothing listens there
        target = f"grpc://127.0.0.1:{port}"
        with pytest.raises(ServiceError, match=rf"nobody answers at {target} .*data-dispatcher --port {port}"):
            connect_service(target, tmp_path, "a.wav", 8000, print)
        done = xtts("data-worker", "--dispatcher", target)
        assert done.returncode == 1
        assert f"--dispatcher: nobody answers at {target}" in done.stderr
        taken.listen()
        done = xtts("data-dispatcher", "--port", port)
        assert done.returncode == 1
        assert f"--port {port}: cannot listen on it" in done.stderr
    done = xtts("data-worker", "--dispatcher", "tcp://here")
    assert done.returncode == 2
    assert "'tcp://here' is not an address; write grpc://HOST:PORT" in done.stderr


def test_incompatible_workers_are_refused(made, servers, monkeypatch):
    """Workers that cannot read the corpus or have another TensorFlow, and a service without workers, are refused."""
    target = servers.start("data-dispatcher")
    folder, recording = Path(made.recipe.run.folder), made.part.corpus.utterances[0].path
    with pytest.raises(ServiceError, match=r"no worker of .* has answered in 3 s; start one with: .*data-worker"):
        connect_service(target, folder, recording, 8000, print, patience=Patience(answer=3.0))
    servers.start("data-worker", "--dispatcher", target)
    with pytest.raises(ServiceError, match=r"cannot read .*nowhere.wav .* under the same path"):
        connect_service(target, folder, "/nowhere.wav", 8000, print, patience=PATIENT)
    monkeypatch.setattr(compat, "OFFERED", compat.OFFERED._replace(version="0.1"))
    with pytest.raises(ServiceError, match=r"has TensorFlow .*, this run 0.1; .*start workers of the same"):
        connect_service(target, folder, recording, 8000, print, patience=PATIENT)
