"""Folders put together from two models are refused when they are named, before anything is hashed or loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import ModelError
from harness.models.agreement import check_tokenizer
from harness.models.files import ModelFiles
from harness.models.fingerprint import model_info
from harness.models.loading import load
from harness.models.sources import resolve_model
from harness.tests.models_on_disk import SHAPES, edit_config, save_tiny


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        model_info(resolve_model(str(folder)), folder.parent / "cache")
    assert not (folder.parent / "cache").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_tokenizer(folder: Path, vocabulary: dict[str, int] | list[Any], added: dict[str, int] | None = None) -> None:
    table = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    table["model"]["vocab"] = vocabulary
    table["added_tokens"] += [{"content": token, "id": number} for token, number in (added or {}).items()]
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")


def files_of(folder: Path) -> ModelFiles:
    return ModelFiles(folder, {}, (), {}, False, tuple(folder.iterdir()))


def test_a_tokenizer_with_more_tokens_than_rows(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", vocab_size=256)
    assert refusal(tmp_path / "tiny") == (
        "tiny: its tokenizer has 257 tokens, its embedding only 256 rows; give each model its own tokenizer"
    )
    save_tiny(tmp_path / "just", vocab_size=257)
    model_info(resolve_model(str(tmp_path / "just")), tmp_path / "cache")


def test_a_tokenizer_with_gaps_counts_by_its_highest_id(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    edit_tokenizer(tmp_path / "tiny", {"a": 0, "b": 300})
    assert "has 2 tokens, numbered up to 300, its embedding only 257 rows" in refusal(tmp_path / "tiny")


@given(ids=st.sets(st.integers(0, 20), min_size=1), rows=st.integers(1, 25), kind=st.sampled_from(["json", "vocab"]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exactly_the_ids_that_have_no_row_are_refused(ids: set[int], rows: int, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    table = {f"t{i}": i for i in ids}
    if kind == "vocab":
        (folder / "vocab.json").write_text(json.dumps(table))
    else:
        added = [{"id": 99, "content": "<image>"}]
        (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": {"vocab": table}}))
    if max(ids) < rows:
        check_tokenizer(files_of(folder), rows, "m")
    else:
        with pytest.raises(ModelError, match=rf"has {len(ids)} tokens.*only {rows} rows"):
            check_tokenizer(files_of(folder), rows, "m")


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", -1.0], ["b", -2.0], ["c", -3.0]]}}))
    check_tokenizer(files_of(tmp_path), 3, "m")
    with pytest.raises(ModelError, match="has 3 tokens, its embedding only 2 rows"):
        check_tokenizer(files_of(tmp_path), 2, "m")


@pytest.mark.parametrize(
    "content", ["{}", "[]", "no JSON", '{"model": {"vocab": {}}}', '{"model": {"vocab": {"a": "x"}}}']
)
def test_a_damaged_tokenizer_is_named(content: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").write_text(content)
    message = "tiny: its tokenizer cannot be loaded: tokenizer.json is damaged; copy it again"
    assert refusal(tmp_path / "tiny") == message


@pytest.mark.parametrize("family", list(SHAPES))
def test_a_config_of_another_width_or_vocabulary(family: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", family)
    width = "n_embd" if family == "gpt2" else "hidden_size"
    edit_config(tmp_path / "tiny", **{width: 32})
    assert refusal(tmp_path / "tiny") == (
        "tiny: its embedding has (rows, width) (257, 16) in the weight files and (257, 32) in config.json; "
        "take both from the same model"
    )
    edit_config(tmp_path / "tiny", **{width: 16, "vocab_size": 300})
    assert "(257, 16) in the weight files and (300, 16) in config.json" in refusal(tmp_path / "tiny")


def test_weights_without_the_prefix_of_the_head_are_found_too(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny").transformer.save_pretrained(tmp_path / "tiny")
    source = resolve_model(str(tmp_path / "tiny"))
    assert load(source, model_info(source, tmp_path / "cache")).info.width == 16
    shutil.rmtree(tmp_path / "cache")
    edit_config(tmp_path / "tiny", n_embd=32)
    assert "its embedding has (rows, width) (257, 16)" in refusal(tmp_path / "tiny")


def test_none_of_it_needs_torch(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", vocab_size=100)
    code = (
        "import sys; from pathlib import Path; from harness.models import model_info, resolve_model\n"
        f"try: model_info(resolve_model({str(tmp_path / 'tiny')!r}), Path({str(tmp_path / 'cache')!r}))\n"
        "except Exception as error: print(error, 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("own tokenizer False")
