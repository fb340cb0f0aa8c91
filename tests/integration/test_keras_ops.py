"""`keras.ops` on its three engines: keras_ops.csv and docs/findings.md have what does not pass.

`nox -s keras` has the engines. JAX takes a quarter of an hour, since it compiles each operation.
"""

import csv
import importlib
import importlib.util
import os
from pathlib import Path

import pytest

ENGINES = ("torch", "jax", "tensorflow")
HERE = Path(__file__).parent

for one in ("keras", *ENGINES):
    pytest.importorskip(one)


@pytest.fixture(scope="module")
def keras_ops():
    """The script beside this, whose cases are lists of arrays: Keras itself runs apart."""
    spec = importlib.util.spec_from_file_location("keras_ops", HERE / "keras_ops.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def tables(keras_ops, tmp_path_factory):
    """What became of each case on each engine, of the folder that KERAS_OPS names where it does."""
    folder = Path(os.environ.get("KERAS_OPS") or tmp_path_factory.mktemp("keras"))
    return {engine: keras_ops.rows_of(engine, "", folder) for engine in ENGINES}


def test_every_function_of_keras_ops_has_a_case_or_a_reason(keras_ops):
    assert keras_ops.uncovered() == []


@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_pass_is_what_was_found(keras_ops, tables, engine):
    with (HERE / "keras_ops.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["engine"] == engine]
    known = [(row["function"], row["at"], row["outcome"]) for row in rows]

    found = [(row["name"], row["at"], keras_ops.outcome_of(row)) for row in tables[engine]]

    assert len(found) == len(keras_ops.CASES)
    assert [one for one in found if one[-1] != "PASS"] == known


def test_each_fail_is_confirmed_by_a_reference_of_its_own(keras_ops, tables):
    left = []
    for engine, rows in tables.items():
        for case, row, of_jax in zip(keras_ops.CASES, rows, tables["jax"], strict=True):
            if keras_ops.outcome_of(row) == "FAIL":
                beside = keras_ops.beside_reference(case, row, of_jax)
                assert "a false alarm" not in beside, (engine, case[:2], beside)
                left += [case[1]] if "differences alone" in beside else []

    # Keras has no gradient by what says where pixels come from on TensorFlow, and other values
    assert left == ["the transform", "the points"]
