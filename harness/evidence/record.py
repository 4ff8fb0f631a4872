"""The Record: what an experiment measured, as arrays with named axes, and the settings that made it.

A Record holds no p-value and no verdict. Every statistic can be recomputed from it without the model, which
is why it must be exact: settings are compared as canonical JSON, arrays bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STORABLE_KINDS = "biufcU"
"""numpy dtype kinds that are stored as they lie in memory: bool, int, uint, float, complex, text."""


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII, and no NaN or infinity.

    numpy scalars count as the Python numbers they hold and tuples as lists. ``1`` and ``1.0`` stay different.

    Raises:
        TypeError: a key is not a string (``json`` would make ``1`` and ``"1"`` the same key), or a value is
            of a type that JSON has no place for.
        ValueError: a number is not finite.
    """
    _require_string_keys(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in JSON settings")


def _require_string_keys(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the key {name!r} of JSON settings is not a string")
            _require_string_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_string_keys(inner)


def key(experiment: str, settings: Mapping[str, Any]) -> str:
    """The address of a measurement: sha256 (hex) of the canonical JSON of what determines its numbers."""
    identity = canonical_json({"experiment": experiment, "settings": settings})
    return hashlib.sha256(identity.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Record:
    """A finished measurement. Its arrays are read-only; two are equal when their numbers are, bit for bit.

    Raises:
        ValueError: an array and its axes, or an axis and its coordinates, do not fit each other.
        TypeError: an array has a dtype that is not stored (Python objects), or a value is not JSON.
    """

    experiment: str
    """Name of the experiment, such as ``near-linearity``."""
    settings: Mapping[str, Any]
    """Everything that determines the numbers: model, corpus, protocol, budget. JSON; part of the key."""
    arrays: Mapping[str, np.ndarray]
    """The measured numbers."""
    axes: Mapping[str, Sequence[str]]
    """Names of the axes of each array, in order. An axis has one length in the whole Record."""
    coordinates: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What stands at each place of an axis: document ids, layer numbers, variant names. Optional by axis."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Times, versions, device: how this copy came to be. JSON; not part of the key or of equality."""

    def __post_init__(self) -> None:
        put = object.__setattr__  # the class is frozen; this is where its fields get their final form
        put(self, "settings", json.loads(canonical_json(self.settings)))
        put(self, "provenance", json.loads(canonical_json(self.provenance)))
        put(self, "coordinates", json.loads(canonical_json(self.coordinates)))
        put(self, "axes", {name: tuple(axes) for name, axes in self.axes.items()})
        put(self, "arrays", {name: read_only(name, array) for name, array in self.arrays.items()})
        self._check_axes()

    def _check_axes(self) -> None:
        if set(self.axes) != set(self.arrays):
            raise ValueError(f"arrays are {sorted(self.arrays)} but axes are named for {sorted(self.axes)}")
        lengths: dict[str, int] = {}
        for name, array in self.arrays.items():
            if len(self.axes[name]) != array.ndim:
                raise ValueError(f"array {name!r} of shape {array.shape} has axes {self.axes[name]}")
            for axis, length in zip(self.axes[name], array.shape, strict=True):
                if lengths.setdefault(axis, length) != length:
                    raise ValueError(f"axis {axis!r} has length {length} in {name!r} and {lengths[axis]} elsewhere")
        for axis, places in self.coordinates.items():
            if lengths.get(axis) != len(places):
                raise ValueError(f"axis {axis!r} has {len(places)} coordinates and length {lengths.get(axis)}")

    @property
    def key(self) -> str:
        """The Record's address in a store."""
        return key(self.experiment, self.settings)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            (self.experiment, canonical_json(self.settings)) == (other.experiment, canonical_json(other.settings))
            and (self.axes, canonical_json(self.coordinates)) == (other.axes, canonical_json(other.coordinates))
            and same_arrays(self.arrays, other.arrays)
        )

    __hash__ = None  # type: ignore[assignment]  # equality reads the arrays; look Records up by their key


def read_only(name: str, array: Any) -> np.ndarray:
    """A C-ordered view (a copy where it must be) that refuses writes. TypeError for a dtype not stored."""
    result = np.asarray(array, order="C").view()
    if result.dtype.kind not in STORABLE_KINDS:
        raise TypeError(f"array {name!r} has dtype {result.dtype}, which is not stored")
    result.flags.writeable = False
    return result


def same_arrays(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    """Whether two sets of arrays agree bit for bit: names, dtypes, shapes, and NaN payloads too."""
    return set(a) == set(b) and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )
