"""The embedded models load, are equal in size, were trained on nothing that is evaluated, and have at most
0.75 of the held-out perplexity of a bigram model of the same text."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.embedded import evaluate, train
from fixtures.embedded.bigram import Bigram
from fixtures.embedded.recipe import END, HERE, NAMES, OTHER_PACKAGES, RECIPE, document_hash, encode
from harness.corpora.documentation import (
    DOCUMENTED_PACKAGES,
    package_documents,
    package_version,
    training_documents,
)
from harness.errors import CorpusError

MANIFEST = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
BAR = 0.75
"""Highest share of the bigram model's perplexity that an embedded model may have."""


def config(name: str) -> dict[str, Any]:
    return json.loads((HERE / name / "config.json").read_text(encoding="utf-8"))


def need_packages(names: tuple[str, ...], *, same_version: bool = True) -> None:
    """Skip where a package is missing, or is not the version that the manifest was made with."""
    for name in names:
        try:
            version = package_version(name)
        except CorpusError:
            pytest.skip(f"{name} is not installed")
        if same_version and version != MANIFEST["packages"][name]:
            pytest.skip(f"{name} is {version}, and {MANIFEST['packages'][name]} in the manifest")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "documentation-cache"


def test_they_are_small() -> None:
    files = [path for name in NAMES for path in (HERE / name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 10_000_000
    assert {path.suffix for path in files} == {".json", ".safetensors"}


def test_they_are_equal_in_all_but_architecture() -> None:
    gpt2, neox = config("gpt2"), config("gpt_neox")
    assert (gpt2["model_type"], neox["model_type"]) == ("gpt2", "gpt_neox")
    assert neox["use_parallel_residual"] is True
    assert gpt2["n_layer"] == neox["num_hidden_layers"] >= 6
    assert gpt2["n_embd"] == neox["hidden_size"]
    assert gpt2["n_head"] == neox["num_attention_heads"]
    assert gpt2["vocab_size"] == neox["vocab_size"]
    assert gpt2["n_positions"] == neox["max_position_embeddings"] >= 128
    assert gpt2["activation_function"] == neox["hidden_act"]
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (HERE / "gpt2" / file).read_bytes() == (HERE / "gpt_neox" / file).read_bytes()
    a, b = MANIFEST["models"]["gpt2"], MANIFEST["models"]["gpt_neox"]
    assert (a["steps"], a["tokens"]) == (b["steps"], b["tokens"])
    assert abs(a["parameters"] / b["parameters"] - 1) < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_is_about_these_weights(name: str) -> None:
    digest = hashlib.sha256((HERE / name / "model.safetensors").read_bytes()).hexdigest()
    assert digest == MANIFEST["models"][name]["sha256"]
    assert MANIFEST["recipe"] == json.loads(json.dumps(RECIPE.__dict__))


@pytest.mark.parametrize("name", NAMES)
def test_each_folder_loads_alone(name: str) -> None:
    from transformers import AutoTokenizer

    model = evaluate.load(HERE / name)
    tokenizer = AutoTokenizer.from_pretrained(HERE / name)
    assert sum(p.numel() for p in model.parameters()) == MANIFEST["models"][name]["parameters"]
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert len(tokenizer) == RECIPE.vocabulary
    text = "Returns the array.\n\nParameters\n----------\nx : array_like"
    ids = tokenizer(text)["input_ids"]
    assert ids == encode(HERE / name, [text])[0].tolist(), "AutoTokenizer adds nothing of its own"
    assert tokenizer.decode(ids) == text


@given(st.text())
def test_the_tokenizer_loses_nothing(text: str) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(HERE / "gpt2" / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.token_to_id(END) == 0


def test_no_evaluated_document_was_trained_on(cache: Path) -> None:
    """In whatever version of the packages is installed here."""
    need_packages(DOCUMENTED_PACKAGES, same_version=False)
    trained = set(MANIFEST["documents"])
    evaluated = {document_hash(text) for p in DOCUMENTED_PACKAGES for _, text in package_documents(p, cache)}
    assert len(trained) == len(MANIFEST["documents"]) > 1000
    assert len(evaluated) > 300
    assert not trained & evaluated


@pytest.mark.slow
def test_the_manifest_lists_the_documents_that_the_recipe_trains_on(cache: Path) -> None:
    need_packages((*DOCUMENTED_PACKAGES, *OTHER_PACKAGES))
    hashes = [document_hash(text) for _, text in training_documents(cache, others=OTHER_PACKAGES)]
    assert sorted(hashes) == MANIFEST["documents"]


@pytest.mark.slow
def test_heldout_perplexity_is_a_quarter_below_that_of_a_bigram_model(cache: Path) -> None:
    need_packages((*DOCUMENTED_PACKAGES, *OTHER_PACKAGES))
    windows = evaluate.heldout_windows(HERE / "gpt2", cache)
    bigram = evaluate.bigram_perplexities(HERE / "gpt2", cache, windows)
    assert bigram == pytest.approx(MANIFEST["bigram_perplexity"], rel=1e-3)
    for name in NAMES:
        ours = evaluate.perplexities(evaluate.load(HERE / name), windows)
        assert ours == pytest.approx(MANIFEST["models"][name]["perplexity"], rel=1e-3)
        for package in DOCUMENTED_PACKAGES:
            assert ours[package] <= BAR * bigram[package], (name, package)


@pytest.mark.parametrize("name", NAMES)
def test_their_mlps_matter(name: str) -> None:
    costs = MANIFEST["models"][name]["mean_ablation_cost"]
    assert len(costs) == RECIPE.layers
    assert min(costs) > 0.01, "an MLP whose mean does as well would make every claim about it empty"


def test_mean_ablation_recomputed_for_one_package(cache: Path) -> None:
    need_packages(("numpy",))
    windows = evaluate.heldout_windows(HERE / "gpt2", cache, packages=("numpy",))["numpy"][:24]
    model = evaluate.load(HERE / "gpt2")
    full = evaluate.nll(model, windows[1::2]).mean()
    costs = evaluate.mean_ablation_costs(model, windows)
    assert min(costs) > 0
    assert evaluate.nll(model, windows[1::2]).mean() == full, "hooks are gone afterwards"


def test_padding_changes_no_loss() -> None:
    model = evaluate.load(HERE / "gpt_neox")
    rng = np.random.default_rng(0)
    windows = [rng.integers(0, RECIPE.vocabulary, n).astype(np.int32) for n in (7, 128, 2, 40)]
    alone = np.concatenate([evaluate.nll(model, [window]) for window in windows])
    assert evaluate.nll(model, windows) == pytest.approx(alone, rel=1e-4)


def test_bigram_probabilities_sum_to_one_also_after_an_unseen_word() -> None:
    rng = np.random.default_rng(0)
    V = 12
    bigram = Bigram.of([rng.integers(0, V - 2, 30) for _ in range(4)], V)
    for v in range(V):
        p = np.exp(-bigram.nll([np.array([v, w]) for w in range(V)], 0.7))
        assert p.sum() == pytest.approx(1.0)
        assert p.min() > 0


def test_bigram_by_hand() -> None:
    # Bigrams 0-1 twice, 0-2, 1-0, and none from one document to the next. D = 0.5, V = 4.
    bigram = Bigram.of([np.array([0, 1, 0, 1]), np.array([0, 2])], 4)
    lower = 0.5 / 3 + 0.5 * 3 / 3 / 4  # p(1): one word before 1, three bigrams seen, three words seen after
    expected = [(2 - 0.5) / 3 + 0.5 * 2 / 3 * lower, lower]  # after 0 (three times, two followers); after 3
    assert np.exp(-bigram.nll([np.array([0, 1]), np.array([3, 1])], 0.5)) == pytest.approx(expected)


def test_bigram_scores_every_token_but_a_windows_first() -> None:
    bigram = Bigram.of([np.arange(5)], 5)
    assert len(bigram.nll([np.arange(4), np.arange(1), np.arange(2)], 0.5)) == 3 + 0 + 1


def test_every_window_of_the_stream_is_trained_on_once() -> None:
    starts = train.window_order(10 * RECIPE.batch * RECIPE.context + 1)
    assert starts.shape == (10, RECIPE.batch)
    assert sorted(starts.ravel()) == list(range(0, 10 * RECIPE.batch * RECIPE.context, RECIPE.context))


def test_learning_rate_rises_and_falls() -> None:
    rates = [train.rate_at(step, 1000) for step in range(1000)]
    peak = int(np.argmax(rates))
    assert rates[peak] == RECIPE.learning_rate
    assert peak <= RECIPE.warmup
    assert np.all(np.diff(rates[:peak]) > 0)
    assert np.all(np.diff(rates[peak + 1 :]) < 0)
    assert rates[-1] == pytest.approx(RECIPE.learning_rate * RECIPE.final_share, rel=1e-2)


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_training_ends_in_the_same_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    small = replace(RECIPE, layers=1, width=8, heads=2, vocabulary=32, context=8, batch=2, warmup=2)
    monkeypatch.setattr(train, "RECIPE", small)
    monkeypatch.setattr(train, "CHECKPOINT_EVERY", 2)
    stream = np.random.default_rng(0).integers(0, 32, 6 * 16 + 1).astype(np.int32)
    for run in ("whole", "broken"):
        (tmp_path / run).mkdir()
        np.save(tmp_path / run / "stream.npy", stream)
    train.train(name, tmp_path / "whole")

    rate_at = train.rate_at

    def stop(step: int, steps: int) -> float:
        if step == 3:
            raise KeyboardInterrupt
        return rate_at(step, steps)

    with monkeypatch.context() as patch:
        patch.setattr(train, "rate_at", stop)
        with pytest.raises(KeyboardInterrupt):
            train.train(name, tmp_path / "broken")
    train.train(name, tmp_path / "broken")
    whole, broken = (torch.load(tmp_path / run / f"{name}.pt", weights_only=True) for run in ("whole", "broken"))
    assert whole["step"] == broken["step"] == 6
    torch.testing.assert_close(broken["model"], whole["model"], rtol=0, atol=0)
