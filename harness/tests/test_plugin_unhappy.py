"""What cannot be used is one clear line and a failing exit code, and the evidence store stays as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.corpora import CorpusSource, DocumentSet, load_documents
from harness.errors import CorpusError, ModelError
from harness.models.fingerprint import ModelInfo, model_info
from harness.models.sources import ModelSource
from harness.tests.models_on_disk import byte_tokenizer, edit_config, into_pickle
from harness.tests.plugin_projects import Project, told, write_corpus


def no_folder(project: Project) -> str:
    return str(project.path / "nowhere")


def no_weights(project: Project) -> str:
    folder = project.model(name="bare")
    (folder / "model.safetensors").unlink()
    return str(folder)


def no_config(project: Project) -> str:
    folder = project.path / "empty"
    folder.mkdir()
    return str(folder)


def encoder(project: Project) -> str:
    from transformers import BertConfig, BertForMaskedLM

    folder = project.path / "bert"
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 8}
    BertForMaskedLM(BertConfig(vocab_size=257, **sizes)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def truncated(project: Project) -> str:
    folder = project.model(name="cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return str(folder)


def pickled(project: Project) -> str:
    folder = project.model(name="old")
    into_pickle(folder)
    return str(folder)


def unknown_family(project: Project) -> str:
    folder = project.model(name="strange")
    edit_config(folder, model_type="strange", architectures=["StrangeForCausalLM"])
    return str(folder)


def misspelt(project: Project) -> str:
    return "embeded-gpt2"


MODELS: dict[Callable[[Project], str], str] = {
    no_folder: "--model */nowhere: no such file or folder",
    no_weights: "bare*no *weights*",
    no_config: "empty*config.json*",
    encoder: "bert (BertForMaskedLM) is not a causal language model",
    truncated: "model.safetensors is truncated: * bytes where its header says *; copy or download it again",
    pickled: "old*--allow-pickle*",
    unknown_family: "strange: transformers * has no such model, and family 'strange' is not known; see *; known are *",
    misspelt: "--model embeded-gpt2: no such folder, *; did you mean embedded-gpt2[?]",
}


def write(name: str, content: bytes) -> Callable[[Project], str]:
    def corpus(project: Project) -> str:
        (project.path / name).write_bytes(content)
        return f"text={project.path / name}"

    return corpus


def few_documents(project: Project) -> str:
    return f"text={write_corpus(project.path / 'few.jsonl', documents=3)}"


def empty_folder(project: Project) -> str:
    (project.path / "folder").mkdir()
    return f"text={project.path / 'folder'}"


CORPORA: list[tuple[Callable[[Project], str], str]] = [
    (write("empty.txt", b""), "corpus text: empty.txt: the file is empty"),
    (write("blank.txt", b" \n\n"), "corpus text: blank.txt: the file is empty"),
    (
        write("latin.txt", "naïve\n".encode("latin-1") * 99),
        "corpus text: latin.txt: not UTF-8 at byte 2 (line 1): convert it, *",
    ),
    (
        write("bad.jsonl", b'{"text": "a"}\n{"body": "b"}\n'),
        'corpus text: bad.jsonl: line 2 has no "text" of type string*',
    ),
    (few_documents, "corpus text: few.jsonl holds 3 *, too few for four splits (at least 8)*"),
    (empty_folder, "corpus text: the folder folder holds no text file*"),
    (lambda project: f"text={project.path / 'nowhere.txt'}", "--corpus text=*nowhere.txt: no such file or folder"),
    (lambda project: "wikitxt", "--corpus wikitxt: unknown corpus; known by name are wikitext, *"),
]


def one_line(result: pytest.RunResult, message: str) -> None:
    """A usage error, and nothing else on standard error."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.strip()]
    pytest.LineMatcher([line]).fnmatch_lines([f"ERROR: {message}"])


@pytest.fixture
def unharmed(project: Project) -> Callable[[], None]:
    """A store with good records in it, and a check that they are still there, whole and readable."""
    project.run("--report", "before")
    records = project.path / ".evidence" / "records"
    before = {file.name: file.read_bytes() for file in records.iterdir()}
    assert len(before) == 3

    def check() -> None:
        assert {file.name: file.read_bytes() for file in records.iterdir()} == before
        assert project.measured_layers() == [0, 1, 2]
        assert not (project.path / ".evidence" / "damaged").exists()
        assert not (project.path / "out").exists()

    return check


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_model_that_cannot_be_used(project: Project, unharmed: Callable[[], None], make) -> None:
    one_line(project.run("--model", make(project)), MODELS[make])
    unharmed()


@pytest.mark.parametrize(("make", "message"), CORPORA, ids=range(len(CORPORA)))
def test_a_corpus_that_cannot_be_used(project: Project, unharmed: Callable[[], None], make, message: str) -> None:
    one_line(project.run("--corpus", make(project)), message)
    unharmed()


def test_a_corpus_with_too_few_tokens_is_an_error_of_each_claim(project: Project) -> None:
    """Enough documents, but nothing in them to fit on; found out once they are tokenized."""
    file = project.path / "short.jsonl"
    file.write_text("".join(json.dumps({"text": letter}) + "\n" for letter in "abcdefghijklmnop"), encoding="utf-8")
    result = project.run("--corpus", f"text={file}")
    result.assert_outcomes(errors=6)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    message = "corpus text: its select split has no text of two tokens; give a longer text"
    assert told(result, "ERRORS") == [message] * 6
    assert [error["message"] for error in project.report()["errors"]] == [message] * 6


def test_a_pickle_is_opened_when_that_is_allowed(project: Project) -> None:
    project.run("--model", pickled(project), "--allow-pickle").assert_outcomes(passed=3, failed=1, skipped=2)


def misfit(project: Project) -> Path:
    """A model whose weights have another shape than its config says, which only loading shows."""
    folder = project.model(name="odd")
    edit_config(folder, n_inner=48)
    return folder


MISFIT = "odd: its weights have not the shape that the config asks for in transformer.h.0.mlp.c_*"


def test_weights_that_do_not_fit_their_config(project: Project, unharmed: Callable[[], None]) -> None:
    one_line(project.run("--model", misfit(project)), MISFIT)
    unharmed()


def test_of_two_models_the_other_is_judged(project: Project) -> None:
    result = project.run("--model", misfit(project), "--model", project.model())
    result.assert_outcomes(errors=6, passed=3, failed=1, skipped=2)
    (message,) = {error["message"] for error in project.report()["errors"]}
    pytest.LineMatcher([message]).fnmatch_lines([MISFIT])


def test_a_model_that_is_measured_need_not_load(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.run()
    monkeypatch.setattr("harness.models.loading.load", lambda *_, **__: pytest.fail("loaded"))
    project.run("--report", "again").assert_outcomes(passed=3, failed=1, skipped=2)


def test_a_hub_model_that_cannot_be_had_is_asked_for_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def gone(source: ModelSource, cache: Path) -> ModelInfo:
        if source.kind != "hub":
            return model_info(source, cache)
        asked.append(source.name)
        raise ModelError(f"{source.name}: no such model on the hub")

    monkeypatch.setattr("harness.run.model_info", gone)
    one_line(project.run("--model", "owner/name"), "owner/name: no such model on the hub")
    assert asked == ["owner/name"]
    assert not (project.path / "out").exists()
    result = project.run("--model", "owner/name", "--model", project.model())
    result.assert_outcomes(errors=6, passed=3, failed=1, skipped=2)
    assert told(result, "ERRORS") == ["owner/name: no such model on the hub"] * 6
    assert asked == ["owner/name"] * 2


def test_a_hub_corpus_that_cannot_be_had_is_one_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(source: CorpusSource, cache: Path) -> DocumentSet:
        if source.kind != "hub":
            return load_documents(source, cache)
        raise CorpusError(f"corpus {source.name}: no such dataset on the hub")

    monkeypatch.setattr("harness.run.load_documents", gone)
    models = project.model(), project.model("worse", name="child")
    for named in (["--model", models[0]], ["--model", models[0], "--model", models[1]]):
        one_line(project.run(*named, "--corpus", "owner/name"), "corpus name: no such dataset on the hub")
        assert not (project.path / "out").exists()


def test_a_context_longer_than_the_model_is_an_error(project: Project) -> None:
    folder = project.model()
    project.budget += ",context=100"
    project.run("--model", folder).assert_outcomes(errors=6)
    (message,) = {error["message"] for error in project.report()["errors"]}
    assert message == "windows of 100 tokens, but the model has 64 positions; use a shorter context"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "0"], "--memory must be more than 0 GiB"),
        (["--budget", "huge"], "--budget huge: no such budget; choose one of smoke, quick, paper, full"),
        (["--budget", "quick,fit=0"], "--budget: fit='0' is not a positive whole number"),
        (["--budget", "quick,size=3"], "--budget: no size 'size'; a budget has *"),
        (["--budget", "quick,variants=mean"], "--budget: the variants must include 'linear'"),
    ],
)
def test_an_option_that_cannot_be(project: Project, arguments: list[str], message: str) -> None:
    one_line(project.run(*arguments), message)


def test_two_models_of_one_name(project: Project) -> None:
    other = shutil.copytree(project.models / "worse", project.path / "other" / "trained")
    message = "--model: two of them are called 'trained', and no report could tell them apart"
    one_line(project.run("--model", project.model(), "--model", other), message)


def test_two_corpora_of_one_name(project: Project) -> None:
    other = write_corpus(project.path / "other.jsonl", seed=1)
    message = "--corpus: two of them are called 'text', and no report could tell them apart"
    one_line(project.run("--corpus", f"text={project.corpus}", "--corpus", f"text={other}"), message)


def test_a_report_that_cannot_be_written_is_one_line(project: Project) -> None:
    (project.path / "file").write_text("", encoding="utf-8")
    result = project.run("--report", "file/folder", "-k", "layer_0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: report not written: *choose another --report"])
    assert project.measured_layers() == [0]


def test_a_store_that_cannot_be_written_is_an_error(project: Project) -> None:
    (project.path / "file").write_text("", encoding="utf-8")
    result = project.run("--evidence", "file", "-k", "layer_0")
    one_line(result, "*cannot be written (Not a directory): * choose another folder with --evidence DIR")


def test_a_device_that_is_not_here_is_an_error(project: Project) -> None:
    arguments = [argument if argument != "cpu" else "tpu" for argument in project.arguments()]
    result = project.pytester.runpytest_inprocess(*arguments)
    one_line(result, "--device tpu is not auto, cpu, cuda, cuda:N or mps")
    assert not (project.path / "out").exists()


def test_a_device_and_a_map_are_not_both_to_be_had(project: Project) -> None:
    message = "--device and --device-map are two answers to one question: leave one of them out"
    one_line(project.run("--device-map", "auto"), message)


def test_the_same_model_under_another_name_is_not_measured_again(project: Project) -> None:
    project.run()
    records = project.records()
    project.run("--model", project.model(name="another"), "--report", "again").assert_outcomes(
        passed=3, failed=1, skipped=2
    )
    assert project.records() == records  # records go by what the files hold
    assert project.report("again")["models"][0]["name"] == "another"


def test_the_same_name_with_other_weights_is_measured(project: Project) -> None:
    folder = project.model()
    project.run("--model", folder)
    shutil.rmtree(folder)
    shutil.copytree(project.models / "worse", folder)
    project.run("--model", folder, "--report", "again")
    assert project.measured_layers() == [0, 0, 1, 1, 2, 2]
    first, second = (project.report(name)["measurements"][0] for name in ("out", "again"))
    assert first["records"] != second["records"]


def test_the_same_corpus_name_with_another_text_is_measured(project: Project) -> None:
    file = Path(shutil.copy(project.corpus, project.path / "text.jsonl"))
    project.run("--corpus", f"text={file}")
    write_corpus(file, seed=1)
    project.run("--corpus", f"text={file}", "--report", "again")
    assert project.measured_layers() == [0, 0, 1, 1, 2, 2]
    assert project.report("again")["corpora"][0]["fingerprint"] != project.report()["corpora"][0]["fingerprint"]
