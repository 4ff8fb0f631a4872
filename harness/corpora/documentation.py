"""The documentation of installed packages as documents: three or four domains of real text on any machine.

A module is a document: its docstring and those of its public classes, methods and functions, in the order of the
source. Files are read with `ast`, so nothing is imported (reading torch's documentation does not load torch).

Every module has a side, by a hash of its *name*, so that a new version of a package keeps it there: the
`evaluated` half makes corpora, the `training` half trained the embedded models and never appears in a corpus.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.errors import CorpusError

DOCUMENTED_PACKAGES = ("scipy", "sklearn", "numpy", "torch")
"""Packages whose documentation can be a corpus; half of their modules are kept for training."""

MIN_WORDS = 50
"""Shorter documents are left out: most are a one-line docstring over a file of code."""

GRAM_WORDS = 13
"""Length of the word n-grams by which two documents are compared."""

SHARED = 0.5
"""Share of a document's n-grams found in another document from which on the two are near-duplicates."""

READER_VERSION = 1
"""Raised whenever the text that comes out of a file changes, so that old caches are not used."""

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where the import name is not the distribution's
_TEST_PARTS = frozenset({"test", "tests", "testing", "conftest"})

Documents = list[tuple[str, str]]
"""(module name, text) pairs in the order of the module names."""


def is_evaluated(module: str) -> bool:
    """Whether a module of a documented package belongs to the evaluated half (else to the training half)."""
    return hashlib.sha256(module.encode()).digest()[0] % 2 == 0


def package_documents(package: str, cache: Path) -> Documents:
    """Documents of the evaluated half of an installed package, near-duplicates dropped.

    Cold this parses half of the package's files (some seconds); afterwards it reads one JSON file in `cache`, keyed
    by `package_fingerprint`. Raises CorpusError when the package is not installed or has no documentation.
    """
    documents = _cached(package, cache, "evaluated")
    if not documents:
        raise CorpusError(f"{package}: no module with {MIN_WORDS} words of documentation; choose another package")
    return documents


def training_documents(
    cache: Path,
    documented: Sequence[str] = DOCUMENTED_PACKAGES,
    others: Sequence[str] = (),
) -> Documents:
    """What a model may train on: the training half of `documented` and all modules of `others`.

    No near-duplicates among them, and none of any document of the evaluated half of `documented`: a training document
    is dropped when it shares at least half of its own n-grams, or of an evaluated document's, with that document.
    """
    evaluated = [text for package in documented for _, text in package_documents(package, cache)]
    candidates = [pair for package in documented for pair in _cached(package, cache, "training")]
    candidates += [pair for package in others for pair in _cached(package, cache, "all")]
    return sorted(drop_near_duplicates(candidates, against=evaluated))


def package_fingerprint(package: str) -> str:
    """64 hex digits for the source files of an installed package, without importing it.

    From the version and the hashes in the wheel's RECORD; a package without one (an editable install) is known by
    size and time of its files.
    """
    root = _package_root(package)
    name = _DISTRIBUTIONS.get(package, package)
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        owners = importlib.metadata.packages_distributions().get(package)
        distribution = importlib.metadata.distribution(owners[0]) if owners else None
    version = distribution.version if distribution else "unknown"
    record = distribution.read_text("RECORD") if distribution else None
    lines = sorted(
        line for line in (record or "").splitlines() if line.startswith(f"{package}/") and ".py,sha256=" in line
    )
    if not lines:
        for path in _source_files(root):
            stat = path.stat()
            lines.append(f"{path.relative_to(root).as_posix()},{stat.st_size},{stat.st_mtime_ns}")
    text = "\n".join([package, version, *lines])
    return hashlib.sha256(text.encode()).hexdigest()


def package_version(package: str) -> str:
    """Version of the distribution that an import package comes from; CorpusError when it is not installed."""
    _package_root(package)
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        owners = importlib.metadata.packages_distributions().get(package)
        return importlib.metadata.version(owners[0]) if owners else "unknown"


def module_text(source: str) -> str:
    """Docstrings of a module and of its public classes, methods and functions, a blank line between two.

    Raises SyntaxError for what is not Python (a template, say).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        tree = ast.parse(source)
    return "\n\n".join(_docstrings(tree))


def drop_near_duplicates(candidates: Documents, against: Iterable[str] = ()) -> Documents:
    """Candidates without those that share at least half of their n-grams with a kept one or one of `against`.

    The longer of two candidates stays. With `against` the comparison goes both ways: a candidate also goes when it
    holds half of the n-grams of one of those.
    """
    holders: dict[int, list[int]] = {}  # n-gram -> documents that hold it
    sizes: list[int] = []

    def add(grams: set[int]) -> None:
        for gram in grams:
            holders.setdefault(gram, []).append(len(sizes))
        sizes.append(len(grams))

    for text in against:
        add(word_grams(text))
    protected = len(sizes)
    kept: Documents = []
    ordered = sorted(((word_grams(text), name, text) for name, text in candidates), key=lambda c: (-len(c[0]), c[1]))
    for grams, name, text in ordered:
        shared = Counter(document for gram in grams for document in holders.get(gram, ()))
        near = any(
            n >= SHARED * len(grams) or (document < protected and n >= SHARED * sizes[document])
            for document, n in shared.items()
        )
        if not near:
            add(grams)
            kept.append((name, text))
    return kept


def word_grams(text: str) -> set[int]:
    """Hashes of the word n-grams of a text; of the whole text when it has fewer words than one n-gram.

    Python's own hash of a tuple of strings: salted per process, so never to be stored.
    """
    words = text.split()
    return {hash(tuple(words[i : i + GRAM_WORDS])) for i in range(max(1, len(words) - GRAM_WORDS + 1))}


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        if text:
            yield text
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # what a function defines inside is not public
    for child in ast.iter_child_nodes(node):
        # Statements only, so that expressions are not walked; `if` and `try` at module level may hold definitions.
        if isinstance(child, ast.stmt | ast.excepthandler) and not getattr(child, "name", None):
            yield from _docstrings(child)
        elif isinstance(child, ast.excepthandler) or (
            isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not child.name.startswith("_")
        ):
            yield from _docstrings(child)


def _package_root(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
    except ValueError:  # a module in sys.modules without a spec
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise CorpusError(f"{package}: no such package is installed; install it or name a file with --corpus NAME=FILE")
    return Path(next(iter(spec.submodule_search_locations)))


def _source_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def _is_test(module: str) -> bool:
    return any(part in _TEST_PARTS or part.startswith(("test_", "_test")) for part in module.split("."))


def _read_package(package: str, side: str) -> Documents:
    """Documents of one side (`evaluated`, `training`, `all`), in order of module names, near-duplicates dropped."""
    root = _package_root(package)
    documents: Documents = []
    for path in _source_files(root):
        parts = [package, *path.relative_to(root).with_suffix("").parts]
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if _is_test(module) or (side != "all" and is_evaluated(module) != (side == "evaluated")):
            continue
        try:
            text = module_text(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue  # a template, or source for another version of Python
        if len(text.split()) >= MIN_WORDS:
            documents.append((module, text))
    return sorted(drop_near_duplicates(documents))


def _cached(package: str, cache: Path, side: str) -> Documents:
    fingerprint = package_fingerprint(package)
    rules = f"{READER_VERSION}-{MIN_WORDS}-{GRAM_WORDS}-{SHARED}"
    path = Path(cache) / "documentation" / f"{package}-{side}-{rules}-{fingerprint[:32]}.json"
    try:
        return [(name, text) for name, text in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        pass  # not there, or damaged: read the package again
    documents = _read_package(package, side)
    try:
        _write_atomically(path, json.dumps(documents, ensure_ascii=False))
    except OSError as error:
        raise CorpusError(f"{path.parent}: cannot write the cache ({error.strerror}); choose a folder that can be written")
    return documents


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
