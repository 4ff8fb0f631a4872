"""The store under SIGKILL and in company: whole Records or none, and nothing measured twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from harness.evidence import Record, Store, key

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows")

WRITER = """
import itertools, sys
import numpy as np
from harness.evidence import Record, Store
store = Store(sys.argv[1])
print("ready", flush=True)
for value in itertools.count():
    nll = np.full(500_000, float(value))
    with store.lock(sys.argv[2]):
        store.partial(sys.argv[2]).write("chunk", {"nll": nll})
        store.put(Record("e", {}, {"nll": nll}, {"nll": ("token",)}))
"""

MEASURER = """
import os, sys, time
import numpy as np
from harness.evidence import Record, Store
folder, log, go, seconds = sys.argv[1:]
store = Store(folder)

def measure(journal):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(float(seconds))
    return Record("e", {}, {"x": np.array([float(os.getpid())])}, {"x": ("n",)})

print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.001)
print(int(store.get_or_measure("e", {}, measure).arrays["x"][0]))
"""

RESUMER = """
import sys, time
import numpy as np
from harness.evidence import Record, Store
folder, log = sys.argv[1:]

def tell(line):
    with open(log, "a") as file:
        file.write(line + "\\n")

def measure(journal):
    done = journal.done()
    for chunk in "abcdefgh":
        if chunk not in done:
            tell("begin " + chunk)
            time.sleep(0.02)
            journal.write(chunk, {"x": np.full(100_000, float(ord(chunk)))})
            tell("end " + chunk)
    x = np.stack([journal.read(chunk)["x"] for chunk in "abcdefgh"])
    return Record("e", {}, {"x": x}, {"x": ("chunk", "token")})

print("ready", flush=True)
Store(folder).get_or_measure("e", {}, measure)
"""

KEY = key("e", {})


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_killed_writer_leaves_whole_files_or_none_and_the_lock_free(tmp_path):
    rng = random.Random(0)
    reports: list[str] = []
    last, leftovers = -1.0, 0
    for moment in range(60):
        if moment >= 8 and last >= 0 and leftovers:
            break
        folder = tmp_path / "evidence" if moment % 3 else tmp_path / f"evidence-{moment}"
        child = start(WRITER, folder, KEY)
        time.sleep(rng.uniform(0, 0.06))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        leftovers += len(list(folder.glob("tmp/*")))

        store = Store(folder, reports.append)
        assert list(folder.glob("tmp/*")) == []
        waits: list[float] = []
        with store.lock(KEY, waits.append):
            assert waits == [], "the dead still hold the key"
        record, chunk = store.get(KEY), store.partial(KEY).read("chunk")
        for arrays in (record.arrays if record else None, chunk):
            if arrays is None:
                continue
            nll = arrays["nll"]
            assert nll.shape == (500_000,)
            assert np.all(nll == nll[0])
            last = max(last, nll[0])
    assert reports == []
    assert last >= 0, "no writer lived long enough to write: the test has shown nothing"
    assert leftovers > 0, "no writer died while it wrote: the test has shown nothing"


def test_a_run_killed_again_and_again_ends_with_the_same_numbers_and_repeats_one_chunk_a_kill(tmp_path):
    rng = random.Random(1)
    log, folder = tmp_path / "log", tmp_path / "evidence"
    kills = 0
    while True:
        child = start(RESUMER, folder, log)
        try:
            child.wait(timeout=rng.uniform(0.03, 0.1) if kills < 6 else 120)
            break
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            kills += 1
    assert child.returncode == 0
    lines = log.read_text().splitlines()
    assert kills > 0
    assert sum(line.startswith("begin") for line in lines) <= 8 + kills
    for i, line in enumerate(lines):
        if line.startswith("end"):
            assert line.replace("end", "begin") not in lines[i:], "a finished chunk was measured again"
    record = Store(folder).get(KEY)
    assert record is not None
    assert record.arrays["x"].tolist() == np.repeat([[ord(c)] for c in "abcdefgh"], 100_000, 1).tolist()
    assert not (folder / "partial" / KEY).exists()


def test_processes_that_want_one_record_measure_it_once(tmp_path):
    log, go = tmp_path / "log", tmp_path / "go"
    children = [start(MEASURER, tmp_path / "evidence", log, go, 0.5) for _ in range(3)]
    go.touch()
    answers = [child.communicate(timeout=60)[0].strip() for child in children]
    (measurer,) = log.read_text().split()
    assert answers == [measurer] * 3


def test_the_next_in_line_measures_when_the_first_is_killed(tmp_path):
    log, go = tmp_path / "log", tmp_path / "go"
    go.touch()
    first = start(MEASURER, tmp_path / "evidence", log, go, 600)
    while not log.exists():
        time.sleep(0.005)
    second = start(MEASURER, tmp_path / "evidence", log, go, 0)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    answer = second.communicate(timeout=60)[0].strip()
    assert log.read_text().split() == [str(first.pid), str(second.pid)]
    assert answer == str(second.pid)


@pytest.mark.parametrize("stores", [1, 2])
def test_threads_that_want_one_record_measure_it_once(tmp_path: Path, stores: int):
    shared = [Store(tmp_path / "evidence") for _ in range(stores)]
    measured, found = [], []

    def measure(_journal):
        measured.append(1)
        time.sleep(0.2)
        return Record("e", {}, {"x": np.zeros(1)}, {"x": ("n",)})

    def want(store: Store) -> None:
        found.append(store.get_or_measure("e", {}, measure))

    threads = [threading.Thread(target=want, args=(shared[i % stores],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 4
    assert len(measured) == 1


def test_waiting_is_told(tmp_path):
    store = Store(tmp_path / "evidence")
    waits: list[float] = []
    held = threading.Event()

    def hold() -> None:
        with store.lock(KEY):
            held.set()
            while len(waits) < 2:
                time.sleep(0.01)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with store.lock(KEY, waits.append):
        pass
    holder.join()
    assert waits[0] < 0.9 < waits[1]


def test_one_thread_may_lock_again_through_another_store(tmp_path):
    code = """
import sys
from harness.evidence import Record, Store
with Store(sys.argv[1]).lock(sys.argv[2]), Store(sys.argv[1]).lock(sys.argv[2]):
    Store(sys.argv[1]).put(Record("e", {}, {}, {}))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "evidence"), KEY]
    subprocess.run(command, check=True, timeout=60)  # in a child: a deadlock would be for ever
    assert Store(tmp_path / "evidence").get(KEY) == Record("e", {}, {}, {})
