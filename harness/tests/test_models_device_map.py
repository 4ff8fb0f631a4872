"""A model spread over memory and disk gives the same numbers as one that is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.errors import ModelError
from harness.models.fingerprint import model_info
from harness.models.loading import Subject, load
from harness.models.sources import resolve_model
from harness.substitution import base_pass, variant_nll
from harness.tests.experiment_example import Toy, toy
from harness.tests.models_on_disk import save_tiny
from harness.tests.plugin_projects import Project

BLOCKS = {"gpt2": "transformer.h", "llama": "model.layers"}


def subject_of(folder: Path, **options: object) -> Subject:
    source = resolve_model(str(folder))
    return load(source, model_info(source, folder.parent / "cache"), **options)  # type: ignore[arg-type]


def losses(subject: Subject) -> list[torch.Tensor]:
    """Of the unchanged model and of each MLP taken out, on two windows."""
    ids = torch.randint(0, 257, (2, 12), generator=torch.Generator().manual_seed(0))
    base = base_pass(subject, ids, torch.tensor([12, 9]))
    nothing = torch.zeros(1, 2, 12, subject.anatomy.width)
    return [base.nll, *(variant_nll(subject, base, layer, nothing) for layer in range(subject.anatomy.layers))]


def maps(subject: Subject) -> dict[str, str | dict[str, str]]:
    blocks = BLOCKS[subject.info.family]
    parts = [name for name, module in subject.model.named_modules() if "." in name and name.count(".") == 1]
    others = {name: "cpu" for name in parts if name != blocks} | {"lm_head": "cpu"}
    layers = {f"{blocks}.{layer}": "disk" if layer % 2 else "cpu" for layer in range(subject.anatomy.layers)}
    return {"auto": "auto", "sequential": "sequential", "disk": {"": "disk"}, "mixed": others | layers}


@pytest.mark.parametrize("kind", ["auto", "sequential", "disk", "mixed"])
@pytest.mark.parametrize("family", list(BLOCKS))
def test_a_spread_model_gives_the_same_losses(family: str, kind: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", family)
    whole = subject_of(tmp_path / "tiny")
    spread = subject_of(tmp_path / "tiny", device_map=maps(whole)[kind], offload=tmp_path / "offload")
    if kind in ("disk", "mixed"):
        assert spread.device_map is not None
        assert "disk" in spread.device_map.values()
        assert any(weight.is_meta for weight in spread.model.parameters())
    assert whole.device_map is None
    for ours, theirs in zip(losses(spread), losses(whole), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_the_folder_for_parts_on_disk_goes_with_the_subject(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    subject = subject_of(tmp_path / "tiny", device_map={"": "disk"}, offload=tmp_path / "offload")
    assert len(list((tmp_path / "offload").iterdir())) == 1
    del subject
    assert not list((tmp_path / "offload").iterdir())


def test_a_map_needs_no_room_on_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(tmp_path / "tiny")
    monkeypatch.setattr("harness.models.memory.free_bytes", lambda device: 1)
    with pytest.raises(ModelError, match="add --device-map auto, or take a larger device"):
        subject_of(tmp_path / "tiny", dtype="bfloat16")
    subject = subject_of(tmp_path / "tiny", device_map="auto", offload=tmp_path / "offload")
    assert subject.device == torch.device("cpu")
    assert set((subject.device_map or {}).values()) == {"disk"}, "what has no room in memory lies on disk"


def test_an_unknown_map_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    with pytest.raises(ModelError, match="--device-map all is not one of auto, balanced, balanced_low_0, sequential"):
        subject_of(tmp_path / "tiny", device_map="all")


def test_a_measurement_on_a_spread_model_is_the_same_and_says_so(tmp_path: Path) -> None:
    whole = toy(tmp_path)
    spread = load(
        resolve_model(str(tmp_path / "model")),
        whole.request.model,
        device_map=maps(whole.subject)["mixed"],
        offload=tmp_path / "offload",
    )
    there = Toy(whole.request, spread, tmp_path / "there").measure()
    here = whole.measure()
    assert there == here
    assert {record.provenance["device"] for record in there.values()} == {"cpu, model spread over cpu and disk"}
    assert {record.provenance["device"] for record in here.values()} == {"cpu"}


def test_a_run_with_a_map(project: Project) -> None:
    arguments = project.arguments()
    place = arguments.index("--device")
    arguments[place : place + 2] = ["--device-map", "auto"]
    project.pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=3, failed=1, skipped=2)
    assert project.report()["run"]["device"] == "cpu"
    assert not list((project.path / ".evidence" / "cache" / "offload").iterdir())
