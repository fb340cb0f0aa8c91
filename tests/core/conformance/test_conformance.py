"""The conformance kit itself: excuses that must be true, scenarios that must be able to fail."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adjudge import InputError, Status, Verdict, examine
from adjudge.conformance import (
    CAPABILITIES,
    FAULTS,
    SCENARIOS,
    ConformanceError,
    FaultyBackend,
    PrimitiveBackend,
    Scenario,
    assert_conforms,
    checks,
    faults,
)
from adjudge.conformance.closed_forms import ClosedForms, Placed, PlantedBackend
from adjudge.conformance.subject import Subject, bits
from adjudge.conformance.verdicts import applicable
from adjudge.engine import ArrayOperations, ArraysByNumpy
from adjudge.engine.registry import backend_named

ROOT = Path(__file__).parents[3]
FIRST = ["elementwise"]
NAMED = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture
def numpy():
    return backend_named("numpy")


def planted(numpy, name="elementwise"):
    """NumPy with the derivatives of one scenario: an engine, for the kit."""
    return PlantedBackend(numpy, ClosedForms(NAMED[name]))


EXCUSES = dict.fromkeys(("FR", "RF", "FF", "vmap", "compile"), "closed forms have not got it")


# ---------------------------------------------------------------- the data


def test_names_are_unique_and_every_scenario_has_a_wrong_rule():
    assert len(NAMED) == len(SCENARIOS)
    assert [] == [s.name for s in SCENARIOS if not s.wrong_rules]
    for scenario in SCENARIOS:
        names = [rule.name for rule in scenario.wrong_rules]
        assert len(set(names)) == len(names), scenario.name


def test_every_derivative_in_closed_form_has_a_wrong_rule_somewhere():
    assert {"R", "F", "RR"} == {rule.mode for s in SCENARIOS for rule in s.wrong_rules}


def test_every_need_is_a_capability():
    assert set(CAPABILITIES) >= {name for s in SCENARIOS for name in s.needs}


def test_inputs_are_held_exactly_by_the_narrowest_dtype_of_the_scenario():
    for scenario in SCENARIOS:
        bits_kept = 8 if "bfloat16" in scenario.dtypes else 24
        for leaf in ClosedForms(scenario).inputs:
            mantissa, _ = np.frexp(np.stack([leaf.real, leaf.imag]))
            assert np.all(mantissa * 2**bits_kept == np.rint(mantissa * 2**bits_kept))


EVERY_FAULT = ("elementwise", "several inputs and outputs", "squared modulus", "matrix product",
               "captured constant", "no dimensions", "integer and boolean inputs")  # fmt: skip
"""Scenarios of each kind of array; the others are tried with every other fault in turn."""
IN_DOUBLE = [scenario.name for scenario in SCENARIOS if "float64" in scenario.dtypes]


@pytest.mark.parametrize("name", IN_DOUBLE)
def test_under_every_fault_that_applies_to_it_a_scenario_fails(numpy, name):
    scenario, subject = NAMED[name], Subject(numpy)
    placed = Placed(scenario, numpy, "float64")
    applying = [f for f in FAULTS if applicable(subject, scenario, "float64", f)]

    assert len(applying) >= 5
    # what a fault does is the same for all functions of a kind of array
    for fault in applying if name in EVERY_FAULT else applying[IN_DOUBLE.index(name) % 3 :: 3]:
        engine = FaultyBackend(PlantedBackend(numpy, ClosedForms(scenario)), fault)

        report = examine(placed.function, placed.inputs, backend=engine, seed=0)

        assert report.verdict is Verdict.FAIL, f"{fault}: {report}"
        if FAULTS[fault].status not in (Status.MISMATCH, Status.NONLINEAR):  # or not repeatable
            assert FAULTS[fault].status in {finding.status for finding in report.findings}, fault


def test_a_fault_applies_somewhere(numpy):
    subject = Subject(numpy)
    lone = {"wrong device"}  # NumPy has one device only

    found = {f for f in FAULTS for s in SCENARIOS if applicable(subject, s, "float64", f)}

    assert set(FAULTS) - lone == found


# ---------------------------------------------------------------- what it finds


def test_a_wrong_closed_form_is_found(numpy):
    right = NAMED["used twice"]
    wrong = replace(right, vjp=lambda xp, x, w: w * (x + 1), wrong_rules=())

    with pytest.raises(ConformanceError) as raised:
        assert_conforms(numpy, scenarios=[wrong])

    text = str(raised.value)
    assert "numpy does not conform: " in text
    assert "used twice (float64, cpu): <w, J v> and <J* w, v> are " in text
    assert "used twice (float64): the check of right derivatives is FAIL" in text


def test_a_wrong_derivative_of_an_engine_is_named_with_the_entry_and_what_to_do(numpy):
    wrong = FaultyBackend(planted(numpy), "factor")

    with pytest.raises(ConformanceError) as raised:
        assert_conforms(wrong, scenarios=FIRST, excused=EXCUSES)

    text = str(raised.value)
    assert re.search(r"elementwise \(float64, cpu\): vjp, array 0\[0\] is .*, expected ", text)
    assert "vjp must return J* w, the adjoint" in text


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"wrong device"}))
def test_an_engine_with_a_fault_does_not_conform(numpy, fault):
    names = {"transpose": "matrix product", "conjugate": "squared modulus"}
    name = names.get(fault, "elementwise")
    faulty = FaultyBackend(planted(numpy, name), fault)

    assert any(map(fails, checks(faulty, scenarios=[name], excused=excused_in(name))))


def fails(check):
    """Whether a check finds something wrong; what else is raised comes of the fault."""
    try:
        check.run()
    except Exception as error:  # whatever the engine raises
        return isinstance(error, ConformanceError)
    return False


@pytest.mark.parametrize("name", ["elementwise", "matrix product", "squared modulus"])
def test_the_same_engine_without_a_fault_conforms(numpy, name):
    found = assert_conforms(planted(numpy, name), scenarios=[name], excused=excused_in(name))

    assert found.comparisons > 100


def excused_in(name):
    return EXCUSES if name == "squared modulus" else {**EXCUSES, "complex": "not written"}


def test_failures_of_one_cause_are_told_once_with_their_number(numpy):
    wrong = FaultyBackend(planted(numpy), "factor")

    with pytest.raises(ConformanceError) as raised:
        assert_conforms(wrong, scenarios=FIRST, excused=EXCUSES)

    text = str(raised.value)
    failed, causes = map(int, re.findall(r"(\d+) of \d+ checks fail, for (\d+) causes", text)[0])
    alike = [int(count) for count in re.findall(r"^    (\d+) more for this cause: ", text, re.M)]
    assert text.count("vjp must return J* w, the adjoint") == 1
    assert failed == causes + sum(alike) > causes


def test_messages_that_differ_in_numbers_are_one_cause(numpy):
    class Raising(type(numpy)):
        count = 0

        def owns(self, leaf):
            self.count += 1
            raise LookupError(f"call {self.count}")

    with pytest.raises(ConformanceError) as raised:
        assert_conforms(Raising(numpy.xp), scenarios=FIRST)

    text = str(raised.value)
    assert "checks fail, for 2 causes" in text  # as a capability, and beside that
    assert text.count("raises LookupError: call ") == 2


def test_what_an_engine_lacks_is_told_once_and_not_with_every_fault(numpy):
    backward_only = PrimitiveBackend(planted(numpy))
    excused = {name: why for name, why in EXCUSES.items() if name in ("vmap", "compile")}

    with pytest.raises(ConformanceError, match="numpy lacks jvp") as raised:
        assert_conforms(backward_only, scenarios=FIRST, excused=excused, thorough=True)

    assert "-fault " not in str(raised.value)


def test_an_engine_without_double_precision_is_asked_for_no_error_that_it_cannot_show(numpy):
    class Single(type(numpy)):
        @property
        def arrays(self):
            arrays = super().arrays
            make = arrays.make
            arrays.dtypes = lambda: ["float32"]

            def narrow(values, dtype, device=None):
                if dtype == "float64":
                    raise arrays.lacks_dtype(dtype)
                return make(values, dtype, device)

            arrays.make = narrow
            return arrays

    asked = [check.id for check in checks(Single(numpy.xp), scenarios=FIRST)]

    assert "elementwise-float32-wrong rule: sign" in asked
    assert "elementwise-float32-wrong rule: factor" not in asked
    assert "elementwise-float64-wrong rule: factor" in [
        c.id for c in checks(numpy, scenarios=FIRST)
    ]


class WithoutSome:
    """NumPy without these names."""

    def __init__(self, *names):
        self._names = names

    def __getattr__(self, name):
        if name in self._names:
            raise AttributeError(name)
        return getattr(np, name)


def test_names_that_xp_lacks_are_asked_for_first_and_scenarios_that_need_them_not_run(numpy):
    class Poor(type(numpy)):
        xp = WithoutSome("concat", "stack")

    backend = Poor(np)

    first, *others = checks(backend, scenarios=["elementwise", "joined arrays", "slicing"])

    assert first.id == "namespace"
    with pytest.raises(ConformanceError, match=r"lacks concat \(joined arrays\), stack \(joined"):
        first.run()
    asked = [check.id for check in others]
    assert any(name.startswith("slicing") for name in asked)
    assert not any(name.startswith("joined arrays") for name in asked)


def test_the_page_lists_the_names_that_xp_must_have():
    names = {name for scenario in SCENARIOS for name in ClosedForms(scenario).names} | {"zeros"}
    page = (ROOT / "docs" / "how-to" / "write-an-adapter.md").read_text(encoding="utf-8")
    section = page.split("## What `xp` must have")[1].split("\n## ")[0]

    listed = {name for row in re.findall(r"^\| .* \|$", section, re.M) for name in
              re.findall(r"`([\w.]+)`", row.split("|")[1])}  # fmt: skip
    assert listed == names


# ---------------------------------------------------------------- excuses


def test_a_missing_capability_must_be_excused(numpy):
    excused = {name: reason for name, reason in EXCUSES.items() if name != "vmap"}

    with pytest.raises(ConformanceError, match=r"numpy lacks vmap \(batching\)") as raised:
        assert_conforms(planted(numpy), scenarios=FIRST, excused=excused)

    assert "excused={'vmap': 'the reason'}" in str(raised.value)
    assert "1 of " in str(raised.value)  # and not once more for every check that needs it


@pytest.mark.parametrize("name", ["jvp", "complex", "linalg", "float64", "RR"])
def test_an_excuse_that_is_not_true_fails(name):
    with pytest.raises(ConformanceError, match="but it works") as raised:
        assert_conforms("numpy", scenarios=FIRST, excused={name: "we believe"})

    assert f"remove the excuse '{name}'" in str(raised.value)


def test_an_excuse_for_nothing_that_is_known_lists_what_is():
    with pytest.raises(InputError, match="'jpv'") as raised:
        assert_conforms("numpy", excused={"jpv": "a slip"})

    assert ", ".join(CAPABILITIES) in str(raised.value)


@pytest.mark.parametrize("reason", ["", None])
def test_an_excuse_needs_a_reason(reason):
    with pytest.raises(InputError, match="no reason"):
        assert_conforms("numpy", excused={"jvp": reason})


# ---------------------------------------------------------------- bad input


def test_an_unknown_scenario_lists_the_known():
    with pytest.raises(InputError, match="one of: elementwise, "):
        assert_conforms("numpy", scenarios=["elemntwise"])


def test_no_scenario_is_no_test():
    with pytest.raises(InputError, match="selects nothing"):
        assert_conforms("numpy", scenarios=[])


def test_an_unknown_backend_is_an_error():
    with pytest.raises(TypeError, match="Did you mean 'numpy'"):
        assert_conforms("nunpy")


def test_what_is_no_backend_is_an_error():
    with pytest.raises(InputError, match="no backend"):
        assert_conforms(np)


def test_an_unknown_fault_lists_the_known(numpy):
    with pytest.raises(InputError, match="one of: sign, "):
        FaultyBackend(numpy, "sing")


def test_a_disturbance_that_disturbs_nothing_is_an_error():
    with pytest.raises(ConformanceError, match="changes nothing"):
        assert_conforms("numpy", scenarios=FIRST, disturb={"nothing": (lambda: 0, lambda: 0)})


# ---------------------------------------------------------------- parts


def test_checks_have_unique_names_and_each_compares_something():
    found = list(checks("numpy", scenarios=FIRST))

    assert len({check.id for check in found}) == len(found) > 20
    for check in found:
        check.run()


def test_thorough_asks_for_more():
    few, all_ = (len(list(checks("numpy", thorough=more))) for more in (False, True))

    assert all_ > 1.5 * few


def test_an_own_scenario_is_run_like_the_others():
    own = Scenario(
        "cubes",
        lambda xp, x: x**3,
        lambda xp, x, w: 3 * x**2 * w,
        (np.array([0.5, -2.0]),),
    )

    summary = assert_conforms("numpy", scenarios=[own])

    assert summary.scenarios == 1
    assert summary.comparisons > 100


def test_the_primitive_backend_lacks_what_is_optional(numpy):
    scenario = NAMED["elementwise"]
    placed = Placed(scenario, numpy)

    report = examine(
        placed.function, placed.inputs, backend=PrimitiveBackend(planted(numpy)), modes=["R", "F"]
    )

    assert report.modes == {"R": Verdict.PASS, "F": Status.UNSUPPORTED}


def test_bits_tell_zeros_apart_and_nans_together():
    one, other = bits(np.array([0.0, np.nan, 1.0])), bits(np.array([-0.0, -np.nan, 1.0]))

    assert [False, True, True] == list(one == other)


def test_the_library_does_not_import_the_kit_and_the_kit_imports_no_pytest():
    code = (
        "import sys, adjudge; print('adjudge.conformance' in sys.modules);"
        "import adjudge.conformance; print('pytest' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


# ---------------------------------------------------------------- plain bugs of an author


def test_an_adapter_that_makes_no_array_is_told_by_causes(numpy):
    class Unmade(type(numpy)):
        @property
        def arrays(self):
            arrays = super().arrays
            arrays.make = lambda values, dtype: None  # the device is forgotten
            return arrays

    with pytest.raises(ConformanceError, match="does not conform") as raised:
        assert_conforms(Unmade(numpy.xp), scenarios=FIRST)

    text = str(raised.value)
    assert "raises TypeError: " in text
    assert len(text.splitlines()) < 40


def test_an_adapter_that_cannot_list_what_it_has_fails_a_check_and_is_asked_the_rest(numpy):
    class Unlisted(type(numpy)):
        @property
        def arrays(self):
            arrays = super().arrays
            arrays.devices = lambda: 1 / 0
            return arrays

    found = {check.id: check for check in checks(Unlisted(numpy.xp), scenarios=FIRST)}

    assert "elementwise-float64-vjp" in found
    with pytest.raises(ZeroDivisionError):
        found["arrays-what there is"].run()


class ListArrays(ArraysByNumpy):
    floating = ("float64",)

    def numpy(self, array):
        return np.asarray(array)

    def tensor(self, values, dtype, device, like=None):
        return np.array(values, dtype=dtype)


def test_absent_gradients_need_no_function_of_xp_where_arrays_are_made_by_numpy(numpy):
    bare = WithoutSome("zeros_like")
    made = ListArrays("bare", bare)
    given = ArrayOperations("bare", bare)

    assert [list(one) for one in made.zeros_for_absent((None,), (np.ones(2),))] == [[0.0, 0.0]]
    for arrays, listed in ((made, False), (given, True)):

        class Bare(type(numpy)):
            xp = bare

        backend = Bare(np)
        backend.arrays = arrays
        first = next(iter(checks(backend, scenarios=FIRST)))
        if listed:
            with pytest.raises(ConformanceError, match="xp lacks zeros_like"):
                first.run()
        else:
            first.run()


class SilentArray(np.ndarray):
    """Without axes it ignores what is written into it, as an array of PaddlePaddle does."""

    def __setitem__(self, key, value):
        if self.ndim:
            super().__setitem__(key, value)


def test_a_fault_writes_where_that_changes_something(numpy):
    silent, other = np.array(2.0).view(SilentArray), np.array([2.0, 3.0]).view(SilentArray)
    x, w = (np.array([0.5]),), (silent, other)
    backend = FaultyBackend(planted(numpy), "writes into the cotangent")

    assert not faults.write(numpy.arrays, silent)
    backend._write(w)

    assert silent == 2.0
    assert list(other) == [5.0, 7.0]
    assert faults.write(numpy.arrays, x[0])
