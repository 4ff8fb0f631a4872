"""One line of progress on the terminal during long measurements, also while pytest captures output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_EVERY = 1.0
_WIDTH = 79


class Progress:
    """Called with (what is going on, done, of how much); shows it with the time left.

    Quiet where standard error is no terminal, and in xdist workers.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._what = ""
        self._began = (0.0, 0.0)
        self._last = 0.0
        self._shown = False
        worker = hasattr(config, "workerinput")
        with self._uncaptured():
            self._live = not worker and sys.stderr.isatty()

    def __call__(self, what: str, done: float, of: float) -> None:
        """Show where a measurement is, at most once a second."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._last = what, (now, done), 0.0
        if not self._live or now - self._last < _EVERY:
            return
        self._last = now
        self._write(line(what, done, of, now - self._began[0], self._began[1]))
        self._shown = True

    def clear(self) -> None:
        """Take the line away, for what pytest prints next."""
        if self._shown:
            self._write("")
            self._shown = False

    def say(self, message: str) -> None:
        """A line that stays, terminal or not."""
        self.clear()
        with self._uncaptured():
            print(f"wanamaker: {message}", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        with self._uncaptured():
            print(f"\r{text[:_WIDTH]:<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)

    @contextmanager
    def _uncaptured(self) -> Iterator[None]:
        if self._capture is None:
            yield
        else:
            with self._capture.global_and_fixture_disabled():
                yield


def line(what: str, done: float, of: float, elapsed: float, began: float) -> str:
    """`what  37 %  4 min left`; without an estimate where nothing has been done since it began."""
    if of <= 1:
        return what
    left = "" if done <= began else f"  {_duration(elapsed * (of - done) / (done - began))} left"
    return f"{what}  {done / of:.0%}{left}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
