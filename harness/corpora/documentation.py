"""The documentation of installed packages as documents: three or four domains on a machine without network.

A module is a document: its docstring and those of its public classes, methods and functions, in the order of
the source. Files are read with `ast` and nothing is imported, so reading torch's documentation does not load
torch.

Every module of a documented package has a side, by a hash of its *name*, so that a new version of the
package keeps it there. The `evaluated` half makes corpora; the `training` half is what the embedded models
were trained on, and never appears in a corpus.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from harness.corpora import storage
from harness.errors import CorpusError

DOCUMENTED_PACKAGES = ("scipy", "sklearn", "numpy", "torch")
"""Packages whose documentation can be a corpus; half of their modules are kept for training."""

MIN_WORDS = 50
"""Shorter documents are left out: most are one line of docstring over a file of code."""

GRAM_WORDS = 13
"""Length of the word n-grams by which two documents are compared."""

SHARED = 0.5
"""Share of a document's n-grams held by another document from which on the two are near-duplicates."""

READER_VERSION = 2
"""Part of every key in the cache: raised when the same files give other documents than before."""

Side = Literal["evaluated", "training", "both"]
Documents = list[tuple[str, str]]
"""(module name, text) pairs in the order of the module names."""

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where the distribution is not named as the package
_TEST_PARTS = frozenset({"test", "tests", "testing", "conftest"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (ast.ClassDef, *_FUNCTIONS)


def package_documents(package: str, cache: Path) -> Documents:
    """Documents of the evaluated half of an installed package, without near-duplicates among them.

    Cold this parses half of the package's files, which takes seconds; afterwards it reads one file of
    `cache`, kept under the `package_fingerprint`. Raises CorpusError when the package is not installed, when
    it has no documentation, or when the cache cannot be written.
    """
    documents = _read_cached(package, cache, "evaluated")
    if not documents:
        raise CorpusError(
            f"{package}: none of its modules has {MIN_WORDS} words of documentation; name another package"
        )
    return documents


def training_documents(
    cache: Path, documented: Sequence[str] = DOCUMENTED_PACKAGES, others: Sequence[str] = ()
) -> Documents:
    """What a model may be trained on: the training half of `documented`, and all modules of `others`.

    Without near-duplicates among them, and without those of evaluated documents: a training document goes
    when it shares at least half of its own n-grams, or of the evaluated document's, with any evaluated
    document of `documented`. Raises CorpusError as `package_documents` does.
    """
    evaluated = [text for package in documented for _, text in package_documents(package, cache)]
    candidates = [pair for package in documented for pair in _read_cached(package, cache, "training")]
    candidates += [pair for package in others for pair in _read_cached(package, cache, "both")]
    return drop_near_duplicates(candidates, protected=evaluated)


def is_evaluated(module: str) -> bool:
    """Whether a module of a documented package is in the evaluated half, and so not in the training half."""
    return hashlib.sha256(module.encode()).digest()[0] % 2 == 0


def package_version(package: str) -> str:
    """Version of the distribution that an import package comes from; CorpusError when it is not installed."""
    _package_root(package)
    distribution = _distribution(package)
    return distribution.version if distribution else "unknown"


def package_fingerprint(package: str) -> str:
    """64 hex digits for the source files of an installed package, which is not imported.

    From the version and the hashes of the files in the wheel's RECORD. A package without one (an editable
    install, say) is known by the sizes and times of its files.
    """
    root = _package_root(package)
    distribution = _distribution(package)
    record = (distribution.read_text("RECORD") or "") if distribution else ""
    files = sorted(line for line in record.splitlines() if line.startswith(f"{package}/") and ".py,sha256=" in line)
    if not files:
        stats = [(path, path.stat()) for path in _source_files(root)]
        files = [f"{path.relative_to(root).as_posix()},{s.st_size},{s.st_mtime_ns}" for path, s in stats]
    lines = [package, distribution.version if distribution else "unknown", *files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def module_text(source: str) -> str:
    """Docstrings of a module and of its public classes, methods and functions, a blank line between them.

    Names that begin with an underscore, and what a function defines inside, are not public. Raises
    SyntaxError, or ValueError for null bytes, where the source is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        tree = ast.parse(source)
    text = "\n\n".join(_docstrings(tree))
    return text.encode("utf-8", "replace").decode()  # a docstring can hold a lone surrogate; a file cannot


def drop_near_duplicates(candidates: Documents, protected: Iterable[str] = ()) -> Documents:
    """Candidates, by name, without those that share at least half of their n-grams with one that is kept.

    Of two near-duplicates the one with more n-grams stays, or the first by name. A candidate also goes when
    it shares at least half of its own n-grams, or of the other's, with one of the `protected` texts.
    """
    holders: dict[int, list[int]] = {}  # n-gram -> texts that hold it, numbered in the order they were added
    sizes: list[int] = []  # n-grams of each

    def add(grams: set[int]) -> None:
        for gram in grams:
            holders.setdefault(gram, []).append(len(sizes))
        sizes.append(len(grams))

    for text in protected:
        add(word_grams(text))
    barred = len(sizes)
    kept: Documents = []
    longest_first = sorted(
        ((word_grams(text), name, text) for name, text in candidates), key=lambda c: (-len(c[0]), c[1])
    )
    for grams, name, text in longest_first:
        shared = Counter(number for gram in grams for number in holders.get(gram, ()))
        if not any(
            n >= SHARED * len(grams) or (number < barred and n >= SHARED * sizes[number])
            for number, n in shared.items()
        ):
            add(grams)
            kept.append((name, text))
    return sorted(kept)


def word_grams(text: str) -> set[int]:
    """Hashes of a text's n-grams of words; of the whole text where it has fewer words than one of them.

    They are Python's own, salted anew in every process: to be compared, never to be stored.
    """
    words = text.split()
    return {hash(tuple(words[i : i + GRAM_WORDS])) for i in range(max(1, len(words) - GRAM_WORDS + 1))}


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Module, *_DEFINITIONS)) and (text := ast.get_docstring(node)):
        yield text
    if isinstance(node, _FUNCTIONS):
        return
    for child in ast.iter_child_nodes(node):
        # Only statements, so that no expression is walked; an `if` or `try` of a module may hold definitions.
        public = not (isinstance(child, _DEFINITIONS) and child.name.startswith("_"))
        if isinstance(child, (ast.stmt, ast.excepthandler)) and public:
            yield from _docstrings(child)


def _package_root(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
    except ValueError:  # a module that was put into sys.modules without a spec
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise CorpusError(
            f"{package}: no such package is installed; install it, or give a file: --corpus {package}=FILE"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _distribution(package: str) -> importlib.metadata.Distribution | None:
    """What the package was installed from; None for a plain folder on the path."""
    try:
        return importlib.metadata.distribution(_DISTRIBUTIONS.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        owners = importlib.metadata.packages_distributions().get(package)  # reads all metadata: slow
        return importlib.metadata.distribution(owners[0]) if owners else None


def _source_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def _is_test(module: str) -> bool:
    return any(part in _TEST_PARTS or part.startswith(("test_", "_test")) for part in module.split("."))


def _read(package: str, side: Side) -> Documents:
    """Documents of one side of a package, without near-duplicates among them."""
    root = _package_root(package)
    documents: Documents = []
    for path in _source_files(root):
        parts = [package, *path.relative_to(root).with_suffix("").parts]
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if _is_test(module) or (side != "both" and is_evaluated(module) != (side == "evaluated")):
            continue
        try:
            text = module_text(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue  # a template, another encoding, or source for another version of Python
        if len(text.split()) >= MIN_WORDS:
            documents.append((module, text))
    return drop_near_duplicates(documents)


def _read_cached(package: str, cache: Path, side: Side) -> Documents:
    rules = [READER_VERSION, MIN_WORDS, GRAM_WORDS, SHARED, package_fingerprint(package)]
    key = storage.sha256(json.dumps(rules).encode())
    path = Path(cache) / "documentation" / f"{package}-{side}-{key[:32]}.json"
    payload = storage.read_checked(path)
    if payload is not None:
        return [(name, text) for name, text in json.loads(payload)]
    documents = _read(package, side)
    storage.write_checked(path, json.dumps(documents, ensure_ascii=False).encode())
    return documents
