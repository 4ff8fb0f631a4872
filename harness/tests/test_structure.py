"""Families found by structure: what the table knows is found as it says; what is not in it is proved or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.errors import ModelError
from harness.models.anatomy import Anatomy
from harness.models.families import FAMILIES
from harness.models.fingerprint import model_info
from harness.models.loading import load
from harness.models.proof import prove
from harness.models.sources import resolve_model
from harness.models.structure import family_of_parts, find_parts
from harness.tests.models_on_disk import SHAPES, edit_config, save_tiny
from harness.tests.test_substitution_families import agree_with_a_copied_block
from harness.tests.tiny_models import MODELS, random_model, subject, tiny_model

NOT_FOUND = {"biogpt", "bloom", "bloom residual normed", "falcon rw", "mpt", "opt", "xglm"}
"""Positions as a bias for each head, and an MLP that no module holds: what only the table can say."""
UNKNOWN: dict[str, dict[str, Any]] = {
    "diffllama": {},
    "internlm3": {"head_dim": 6},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"]},
}
"""Types that are not in the table and are found all the same, among them one whose blocks are not all attention."""


@pytest.mark.parametrize("name", sorted(set(MODELS) - NOT_FOUND))
def test_what_is_found_is_what_the_table_says(name: str) -> None:
    model = tiny_model(name)
    config = model.config.to_dict()
    found, table = family_of_parts(find_parts(config, name)), FAMILIES[model.config.model_type]
    fields = ("blocks", "embedding", "position", "final_norm", "head", "mlp", "fold", "attention")
    assert [getattr(found, field) for field in fields] == [getattr(table, field) for field in fields]
    assert found.norm_name(config) == table.norm_name(config)
    assert found.parallel(config) == table.parallel(config)
    assert (found.layers(config), found.width(config)) == (table.layers(config), table.width(config))
    prove(Anatomy.of(model, found), name, torch.device("cpu"))


@pytest.mark.parametrize("name", sorted(NOT_FOUND))
def test_what_is_not_found_is_refused_and_never_measured(name: str) -> None:
    model = tiny_model(name)
    with pytest.raises(ModelError, match=r"see 'Add a model family' in CONTRIBUTING\.md(; known are apertus, .*)?$"):
        prove(Anatomy.of(model, family_of_parts(find_parts(model.config.to_dict(), name))), name, torch.device("cpu"))


@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_unknown_family_agrees_with_a_copied_block(kind: str) -> None:
    assert kind not in FAMILIES
    model = random_model(kind, **MODELS["llama"][1], **UNKNOWN[kind])
    family = family_of_parts(json.loads(json.dumps(find_parts(model.config.to_dict(), kind))))
    prove(Anatomy.of(model, family), kind, torch.device("cpu"))
    agree_with_a_copied_block(model, subject(model, family))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba", "num_hidden_layers": 2}, "not each of its blocks has just one of mlp, ffn, feed_forw"),
        ({"model_type": "bert", "num_hidden_layers": 2}, "not each of its blocks has just one of mlp, ffn, feed_forw"),
        ({"model_type": "gemma3"}, "it has parts for other things than text"),
        ({"model_type": "nowhere"}, "has no such model"),
        ({"model_type": "vit"}, "no causal language model can be built from its config"),
        (
            {"model_type": "diffllama", "num_hidden_layers": 2, "hidden_size": "wide"},
            "can be built from its config .*hidden_size",
        ),
    ],
)
def test_what_was_looked_for_is_said(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        find_parts(config, "thing")
    assert str(caught.value).startswith("thing: ")
    assert f"family {config['model_type']!r} is not known; see 'Add a model family' in " in str(caught.value)
    assert str(caught.value).endswith(", ".join(FAMILIES))
    assert "\n" not in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose family is not in the table, saved."""
    monkeypatch.setitem(SHAPES, "diffllama", {**SHAPES["llama"], "num_key_value_heads": 2})
    save_tiny(tmp_path / "tiny", "diffllama")
    return tmp_path / "tiny"


def test_an_unknown_family_from_a_folder_to_a_subject(folder: Path) -> None:
    source = resolve_model(str(folder))
    info = model_info(source, folder.parent / "cache")
    assert (info.family, info.layers, info.width, info.parallel) == ("diffllama", 3, 16, False)
    assert info.as_dict()["structure"]["norm"] == "post_attention_layernorm"
    assert not info.parts.fold
    it = load(source, info).anatomy
    assert isinstance(it.norm(1), nn.Module)
    assert it.layers == 3


def test_a_known_family_says_nothing_of_structure(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", "llama")
    info = model_info(resolve_model(str(tmp_path / "tiny")), tmp_path / "cache")
    assert info.parts is FAMILIES["llama"]
    assert "structure" not in info.as_dict()


def test_the_answer_is_remembered_and_needs_no_torch_again(folder: Path) -> None:
    info = model_info(resolve_model(str(folder)), folder.parent / "cache")
    code = (
        "import sys, pathlib; from harness.models import model_info, resolve_model\n"
        f"info = model_info(resolve_model({str(folder)!r}), pathlib.Path({str(folder.parent / 'cache')!r}))\n"
        "info.parts.fold\n"
        "print(info.fingerprint, info.structure['mlp'], {'torch', 'transformers'} & {*sys.modules})"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == f"{info.fingerprint} mlp set()"


def test_code_of_the_models_own_repository_is_never_run_though_transformers_knows_its_type(folder: Path) -> None:
    marker = folder.parent / "ran"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')")
    edit_config(folder, auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    source = resolve_model(str(folder))
    load(source, model_info(source, folder.parent / "cache"))
    assert not marker.exists()
