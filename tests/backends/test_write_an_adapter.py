"""An adapter by a third party: the one of docs/how-to/write-an-adapter.md, run as it stands."""

import contextlib
import functools
import importlib.metadata
import inspect
import io
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import adjudge
from adjudge import AutodiffBackend, Status, Verdict
from adjudge.engine import ArrayOperations, Environment, registry

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-an-adapter.md"
REQUIRED = {"xp", "owns", "vjp"}
KINDS = (property, functools.cached_property)


def blocks(language):
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="session")
def page():
    """What the Python blocks of the page define, and what they print.

    They run the whole conformance kit twice. The fixture is kept for the session, since tests in a
    random order leave this module and come back.
    """
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks("python"):
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 our own page
    return types.SimpleNamespace(**names, printed=printed.getvalue())


@pytest.fixture
def backend(page):
    return page.TapeBackend()


@pytest.fixture
def inputs():
    return np.array([[0.5, -1.5], [2.0, 0.3]]), np.array([0.7, -0.2])


@pytest.fixture
def registered(monkeypatch, page):
    """The adapter as an entry point of another distribution, for arrays of NumPy."""
    module = types.ModuleType("adjudge_tape")
    module.TapeBackend = page.TapeBackend
    monkeypatch.setitem(sys.modules, "adjudge_tape", module)
    point = importlib.metadata.EntryPoint("numpy", "adjudge_tape:TapeBackend", registry.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **group: [point])
    registry.entries.cache_clear()
    yield
    registry.entries.cache_clear()


def statuses(report):
    return {(finding.status, finding.mode) for finding in report.findings}


def test_the_page_prints_a_pass_a_fail_and_what_is_not_supported(page):
    lines = page.printed.splitlines()

    assert lines[0].startswith("PASS f: ")
    assert any(line.startswith("FAIL f: MISMATCH: d out['y'][") for line in lines)
    unsupported = [line for line in lines if line.startswith("UNSUPPORTED")]
    assert len(unsupported) == 3


def test_the_adapter_of_the_page_conforms_and_a_wrong_rule_does_not(page):
    printed = page.printed

    assert re.search(r"^tape conforms: \d+ checks, \d{4,} comparisons", printed, re.MULTILINE)
    assert "but it works\n" in printed
    assert "remove the excuse 'linalg'" in printed
    assert re.search(r"^elementwise-float64-vjp: .* expected", printed, re.MULTILINE)


def test_the_adapter_has_the_required_methods_alone(page):
    own = {name for name in vars(page.TapeBackend) if not name.startswith("_")} - {"name"}

    assert own == REQUIRED
    assert AutodiffBackend.__abstractmethods__ == REQUIRED


def test_an_adapter_without_a_required_method_cannot_be_made(page):
    for name in REQUIRED:
        methods = {k: v for k, v in vars(page.TapeBackend).items() if k in REQUIRED - {name}}

        with pytest.raises(TypeError, match=name):
            type("Incomplete", (AutodiffBackend,), methods)()


def test_an_instance_is_taken_by_every_verb_that_it_supports(page, backend, inputs):
    report = adjudge.gradcheck(page.f, inputs, backend=backend, seed=0, mode="full")

    assert report.modes == {"R": Verdict.PASS}
    assert report.provenance.backend == "tape"
    assert report.counts["comparisons"] == 4 * (4 + 2)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_wrong_rule_of_the_engine_fails(page, backend, inputs, monkeypatch, mode):
    monkeypatch.setitem(page.RULES, np.exp, lambda a: (lambda w: w * a,))

    report = adjudge.examine(page.f, inputs, backend=backend, mode=mode, seed=0)

    assert report.verdict is Verdict.FAIL
    assert {entry.wrt.partition("]")[0] for entry in report.entries} == {"inputs[1"}


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"check_forward_ad": True}, "F"),
        ({"check_batched_grad": True}, "vmap(R)"),
        ({"modes": ["R", "RR"]}, "RR"),
        ({"modes": ["R", "FR"]}, "FR"),
        ({"modes": ["R", "RF"]}, "RF"),
        ({"modes": ["R", "FF"]}, "FF"),
    ],
)
def test_what_the_adapter_lacks_is_unsupported_and_not_skipped(
    page, backend, inputs, options, mode
):
    report = adjudge.examine(page.f, inputs, backend=backend, seed=0, **options)

    assert statuses(report) == {(Status.UNSUPPORTED, mode)}
    assert report.modes["R"] is Verdict.PASS
    assert report.modes[mode] is Status.UNSUPPORTED
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "not supported by backend 'tape'" in str(report)


def test_gradgradcheck_of_an_engine_without_second_order_is_no_pass(page, backend, inputs):
    with pytest.raises(adjudge.GradcheckError, match="RR: a tape inside a tape") as raised:
        adjudge.gradgradcheck(page.f, inputs, backend=backend, seed=0)

    assert raised.value.report.modes == {"R": Verdict.PASS, "RR": Status.UNSUPPORTED}


def test_an_entry_point_is_found_by_the_arrays(registered, page, inputs):
    report = adjudge.gradcheck(page.f, inputs, seed=0)

    assert report.provenance.backend == "tape"


def test_an_entry_point_is_found_by_its_name(registered, page, inputs):
    report = adjudge.gradcheck(page.f, inputs, backend="numpy", seed=0)

    assert report.provenance.backend == "tape"


def test_an_entry_point_finds_a_wrong_rule(registered, page, inputs, monkeypatch):
    monkeypatch.setitem(page.RULES, np.exp, lambda a: (lambda w: 2 * w * np.exp(a),))

    with pytest.raises(adjudge.GradcheckError):
        adjudge.gradcheck(page.f, inputs, seed=0)


def test_without_the_entry_point_the_arrays_have_no_derivatives(page, inputs):
    with pytest.raises(adjudge.InputError, match="numpy has no derivatives"):
        adjudge.gradcheck(page.f, inputs)


def test_an_output_that_is_a_constant_has_the_derivative_zero(backend):
    report = adjudge.gradcheck(
        lambda x: (np.sin(x), np.ones(2)), np.ones(3), backend=backend, mode="full"
    )

    assert report.counts["comparisons"] == 3 * (3 + 2)


def test_an_absent_gradient_is_missing_only_where_the_function_moves(page, backend, inputs):
    class Forgetful(page.TapeBackend):
        def vjp(self, f, x):
            y, pullback = super().vjp(f, x)
            return y, lambda w: (*pullback(w)[:-1], None)

    still = adjudge.examine(lambda x, b: np.sin(x), inputs, backend=backend, seed=0)
    moves = adjudge.examine(page.f, inputs, backend=Forgetful(), seed=0)

    assert still.verdict is Verdict.PASS
    assert statuses(moves) == {(Status.MISSING, "R")}


def test_the_page_names_every_method_of_the_contract():
    text = PAGE.read_text(encoding="utf-8")
    helpers = {"lacks", "lacks_dtype", "lacks_device", "capabilities", "effective_eps"}

    methods = {
        name
        for contract in (AutodiffBackend, ArrayOperations, Environment)
        for name, member in vars(contract).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, KINDS))
    }

    assert {
        name for name in methods - helpers if not re.search(rf"`(backend\.)?{name}\b", text)
    } == set()


def test_the_entry_point_of_the_page_is_in_the_group_that_is_searched():
    (toml,) = blocks("toml")

    assert f'[project.entry-points."{registry.GROUP}"]' in toml
