"""pytest's hooks. Registered by the root conftest.py; the plugin object exists only where options make sense."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from typing import Any, NoReturn

import pytest

from harness.errors import CorpusError, ModelError, WanamakerError
from harness.plugin import items as claims
from harness.plugin import options
from harness.plugin.dry_run import describe
from harness.plugin.evaluation import Baseline, Change, Judged, put, surely_worse
from harness.plugin.progress import Progress
from harness.plugin.report import ReportFile, row_of
from harness.run import Run
from harness.statistics.sweep import NotApplicable, Sweep, Sweeps

PLUGIN = "wanamaker-run"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Check what was asked for, before anything is collected."""
    config.addinivalue_line("markers", "gpu: a claim on one of the paper's six models")
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        # Before torch is imported: workers share the cores rather than each taking all of them.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    if config.getoption("dry_run"):
        config.option.dist = "no"  # there is nothing to distribute; xdist reads this later
    config.pluginmanager.register(WanamakerPlugin(config), PLUGIN)


def run_of(config: pytest.Config) -> Run:
    """The run of this session."""
    plugin: WanamakerPlugin = config.pluginmanager.getplugin(PLUGIN)
    return plugin.run


def _distinct(option: str, names: list[str]) -> None:
    """Raise WanamakerError where two things would go by one name in the report."""
    for name in names:
        if names.count(name) > 1:
            raise WanamakerError(f"{option}: two of them are called {name!r}, and no report could tell them apart")


class WanamakerPlugin:
    """One run of the claims."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.explicit = bool(config.getoption("model"))
        self.progress = Progress(config)
        self.run = Run(options.settings(config), progress=self.progress, log=self.progress.say)
        try:
            asked = self.run.settings
            _distinct("--model", [self.run.source(m).name for m in asked.models] if self.explicit else [])
            _distinct("--corpus", [self.run.corpus(corpus).name for corpus in asked.corpora])
        except WanamakerError as error:
            raise pytest.UsageError(str(error)) from None
        self.gpu_asked = False
        self.baseline_at = options.baseline_path(config)
        if config.getoption("update_baseline"):
            options.check_update(config, self.baseline_at)
        self.baseline: Baseline | None = None
        self.claims: list[pytest.Function] = []
        self.report = ReportFile(config, self.run)
        self._trouble: str | None = None
        self._judged: dict[str, list[Judged] | Exception] = {}
        self._changes: dict[str, Change | None] | None = None
        self._worse: set[str] = set()

    # ---- collection

    def pytest_report_header(self) -> list[str]:
        """What claims are compared with, where workers collect them."""
        return self._compared() if self.config.pluginmanager.hasplugin("dsession") else []

    def pytest_report_collectionfinish(self) -> list[str]:
        """What claims are compared with, where there are any."""
        return self._compared() if self.claims else []

    def _compared(self) -> list[str]:
        if self.baseline_at is None:
            return []
        path, origin = self.baseline_at
        name = path.relative_to(self.config.rootpath) if path.is_relative_to(self.config.rootpath) else path
        how = "the committed baseline; --strict turns it off" if origin == "default" else "as given"
        parent = self.report.parent
        what = f"{parent}, the one model of {name}" if parent else name
        return [f"wanamaker: claims fail only where they got worse than {what} ({how})"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, obj: object
    ) -> list[pytest.Item] | None:
        """No item for a test that checks what was printed for a model that this run does not judge."""
        module = getattr(collector, "module", None)
        return [] if module and claims.is_moot(obj, module, self.run.settings.models) else None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One item for each claim and model."""
        claims.parametrize(metafunc, self.run.settings.models, self.explicit)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the paper's models unless they were asked for; keep items of one model together."""
        claims.arrange(items, self.run.settings.models)
        found = [item for item, _ in claims.claim_items(items)]
        left_out = [item for item in found if item.get_closest_marker("gpu")]
        # -m has had its say: where it left nothing but marked claims, they are what was asked for.
        self.gpu_asked = bool(self.config.getoption("markexpr")) and bool(found) and left_out == found
        if self.gpu_asked and self.baseline_at and self.baseline_at[1] == "default":
            if self.config.getoption("update_baseline"):
                raise pytest.UsageError(
                    "--update-baseline: name the file with --baseline; the default one is not for -m gpu"
                )
            self.baseline_at = None
        if self.explicit or self.gpu_asked:
            return
        if left_out:
            gone = set(left_out)
            self.config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in gone]

    @pytest.hookimpl(tryfirst=True)  # before the terminal asks what to say of the collection
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know what is needed, and find out what is wrong with it before anything is measured."""
        found = claims.claim_items(session.items)
        self.claims = [item for item, _ in found]
        self.run.wanted = claims.wanted_layers(session.items)
        if not found or self.config.option.collectonly:
            return
        try:
            self._check()
        except WanamakerError as error:
            if not hasattr(self.config, "workerinput"):
                raise pytest.UsageError(str(error)) from None
            self._trouble = str(error)  # a worker that gives up here would be shown as an internal error

    def pytest_sessionstart(self) -> None:
        """With xdist, look for what is wrong before the workers do."""
        if self.config.pluginmanager.hasplugin("dsession"):
            try:
                self._check()
            except WanamakerError as error:
                raise pytest.UsageError(str(error)) from None

    def _check(self) -> None:
        if self.baseline_at is not None and not self.config.getoption("dry_run"):
            path, origin = self.baseline_at
            read = origin == "given" or self.claims  # xdist's controller collects none
            if read and (path.is_file() or not self.config.getoption("update_baseline")):
                self.baseline = Baseline(path)
                models = self.run.settings.models
                self.baseline.require(self.run.settings.protocol, self.run.budget(models[0]))
                self.report.parent = self.baseline.stands_for([self.run.source(model).name for model in models])
        if self.explicit:
            local = [m for m in self.run.settings.models if self.run.source(m).kind != "hub"]
            for model in local:
                self.run.info(model)
                self.run.layers(model)
        for corpus in self.run.settings.corpora:
            source = self.run.corpus(corpus)
            if source.kind in ("file", "folder"):
                self.run.documents(source)

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """With ``--dry-run``, say what would be measured and stop."""
        if not self.config.getoption("dry_run"):
            if not self.config.option.collectonly:
                self._require_sources()
            return None
        models = list(dict.fromkeys(model for item in self.claims for model in claims.models_of(item)))
        for line in describe(self.run, models):
            self.config.get_terminal_writer().line(line)
        return True

    def _require_sources(self) -> None:
        """Raise pytest.UsageError where no claim could be judged for want of a source: one line, and no report.

        That is where the one model that was named cannot be loaded, or a corpus that was named cannot be read, for
        every claim is judged on all of them. One of several models is an error of each of its own claims.
        """
        models = {model for item in self.claims for model in claims.models_of(item)}
        if not models or hasattr(self.config, "workerinput"):
            return
        try:
            if self.explicit and len(models) == 1:
                self.run.require(*models)
            if self.run.settings.corpora:
                for source in {source for model in models for source in self.run.corpora(model)}:
                    self.run.documents(source)
        except (ModelError, CorpusError) as error:
            raise pytest.UsageError(str(error)) from None
        except WanamakerError:
            return  # of the measurement: told by the claims
        finally:
            self.progress.clear()

    # ---- running

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the paper's models where there is no GPU and nobody said to do without."""
        if self._trouble and item in self.claims:
            pytest.fail(self._trouble, pytrace=False)
        if self.gpu_asked and item.get_closest_marker("gpu") and self.config.getoption("device") == "auto":
            import torch

            if not torch.cuda.is_available():
                pytest.skip(claims.NO_CUDA)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self) -> Generator[None, Any, Any]:
        """An error that a user is meant to read is one line, not a traceback."""
        try:
            return (yield)
        except WanamakerError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        except NotApplicable as reason:
            raise pytest.skip.Exception(f"not applicable: {reason}", _use_item_location=True) from None
        finally:
            self.progress.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Judge a claim on every corpus and turn the verdict on the first into pytest's outcome."""
        if pyfuncitem not in self.claims:
            return None
        judged = self._judge(pyfuncitem)
        change, worse = self._compare(pyfuncitem)
        row = row_of(pyfuncitem, judged, self._layers(pyfuncitem), change, worse, self.run)
        pyfuncitem.stash[_ROW] = row
        self._outcome(judged[0], row["title"], change, worse)
        return True

    def subjects(self, item: pytest.Function) -> list[Sweep] | list[Sweeps]:
        """What a claim is about, on each corpus, measured where need be."""
        of = claims.subject_of(item)
        if isinstance(of, str):
            return self.run.sweeps(of)
        columns = zip(*(self.run.sweeps(model) for model in of.models), strict=True)
        return [Sweeps(tuple(column)) for column in columns]

    def _judge(self, item: pytest.Function) -> list[Judged]:
        """Verdicts of an item on every corpus, made once; an error is remembered and raised again."""
        if item.nodeid not in self._judged:
            try:
                self._judged[item.nodeid] = [put(item.obj, subject) for subject in self.subjects(item)]
            except Exception as error:
                self._judged[item.nodeid] = error
        found = self._judged[item.nodeid]
        if isinstance(found, Exception):
            raise found
        return found

    def _compare(self, item: pytest.Function) -> tuple[Change | None, bool]:
        """The change since the baseline, and whether it is for the worse with all claims of the run considered."""
        if self.baseline is None:
            return None, False
        if self._changes is None:
            self._changes = {other.nodeid: self._change(other) for other in self.claims}
            self._worse = surely_worse(self._changes.items())
        return self._changes.get(item.nodeid), item.nodeid in self._worse

    def _change(self, item: pytest.Function) -> Change | None:
        assert self.baseline is not None
        try:
            now = self._judge(item)[0]
            return self.baseline.change(item.obj, self.subjects(item)[0], now)
        except Exception:
            return None  # told where the item itself runs; the other claims' comparisons do not hang on it

    def _layers(self, item: pytest.Function) -> dict[str, list[int]]:
        return {model: list(self.run.layers(model)) for model in claims.models_of(item)}

    def _outcome(self, judged: Judged, title: str, change: Change | None, worse: bool) -> None:
        """SUPPORTED passes, REFUTED fails, INCONCLUSIVE skips; with a baseline, only getting worse fails."""
        if judged.verdict is None:
            _skip(f"not applicable: {judged.why_not}")
        line = f"{judged.word}: {title}: {judged.reason}"
        inconclusive = self.config.getoption("inconclusive")
        if self.baseline is not None:
            if change is None:
                _skip(f"{line} (no counterpart in the baseline; add it with --update-baseline)")
            if worse and not self.config.getoption("update_baseline"):
                pytest.fail(f"worse than the baseline by {change.told}; {line}", pytrace=False)
            if judged.word == "INCONCLUSIVE" and inconclusive == "fail":
                pytest.fail(line, pytrace=False)
            if judged.word == "INCONCLUSIVE" and inconclusive == "skip":
                _skip(line)
        elif self.config.getoption("update_baseline"):
            return  # the first baseline: there is nothing to be worse than
        elif judged.word == "REFUTED" or (judged.word == "INCONCLUSIVE" and inconclusive == "fail"):
            pytest.fail(line, pytrace=False)
        elif judged.word == "INCONCLUSIVE" and inconclusive == "skip":
            _skip(line)

    # ---- reporting

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the claim's row, so that it reaches the process that writes the report (xdist)."""
        report = yield
        if item in self.claims and (call.when == "call" or (call.when == "setup" and not report.passed)):
            row = item.stash.get(_ROW, None) or row_of(item, [], {}, None, False, self.run, report)
            row["outcome"] = "error" if row["verdict"] == "error" else report.outcome
            row["place"] = self.claims.index(item)
            report.wanamaker = json.dumps(row)  # type: ignore[attr-defined]
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
        """A claim whose measurement broke is an error, never a failure."""
        if isinstance(report, pytest.TestReport) and report.when == "call" and report.failed:
            row = getattr(report, "wanamaker", None)
            if row and json.loads(row)["outcome"] == "error":
                return "error", "E", "ERROR"
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the rows."""
        if row := getattr(report, "wanamaker", None):
            self.report.add(json.loads(row))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report, where claims were judged and this is the process to do it."""
        self.progress.clear()
        self.run.close()
        if not hasattr(self.config, "workerinput"):
            finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            if not self.report.write(self.baseline_at, finished) and finished:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The short table at the end."""
        self.report.summarize(terminalreporter)


def _skip(reason: str) -> NoReturn:
    """Skip, shown at the line of the claim and not at a line of this module."""
    raise pytest.skip.Exception(reason, _use_item_location=True)


_ROW = pytest.StashKey[dict[str, Any]]()
