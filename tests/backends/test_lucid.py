"""The adapter of Lucid and its doors.

What needs no Lucid runs everywhere: the doors on PyTorch's tensors, since the tensors decide the
engine; and the import, of packages that are called lucid and stand in a folder of the test.
"""

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from frameworks import torch
from pages import HOW_TO, ROOT, examples, printed, without_numbers

import adjudge
import adjudge_lucid
from adjudge.conformance import assert_conforms
from adjudge.errors import InputError, NotSupportedError
from adjudge.findings import Status, Verdict

needs_lucid = pytest.mark.skipif(
    importlib.util.find_spec("lucid") is None,
    reason="Lucid is not installed: pip install 'adjudge[lucid]' on Python 3.12 or later",
)
needs_torch = pytest.mark.backend("torch")


@pytest.fixture
def lucid():
    return importlib.import_module("lucid")


@pytest.fixture
def backend():
    return adjudge_lucid.LucidBackend()


# ---------------------------------------------------------------- the adapter


@pytest.mark.skipif(importlib.util.find_spec("lucid") is not None, reason="Lucid is installed")
@pytest.mark.parametrize("door", ["gradcheck", "gradgradcheck"])
def test_a_door_without_tensors_says_how_lucid_is_installed(door):
    with pytest.raises(ModuleNotFoundError) as caught:
        getattr(adjudge_lucid, door)(lambda x: x, [[1.0, 2.0]])

    assert caught.value.__notes__ == ["adjudge: install it: pip install 'adjudge[lucid]'"]


@needs_lucid
def test_an_array_of_lucid_finds_the_adapter(lucid):
    report = adjudge.gradcheck(lucid.sin, lucid.tensor([0.3, -1.2]), seed=1)

    assert "lucid 2" in str(report) or "lucid 3" in str(report)


@needs_lucid
@pytest.mark.parametrize("dtype", ["Float64", "Float32", "Float16"])
def test_right_rules_pass_and_a_wrong_one_fails(lucid, dtype):
    x = lucid.tensor([0.5, -1.25, 2.0], dtype=getattr(lucid, dtype))

    assert adjudge.examine(lambda x: lucid.exp(x) * x, x, seed=1)
    wrong = adjudge.examine(lambda x: lucid.exp(x) * x.detach(), x, seed=1)
    assert wrong.verdict is Verdict.FAIL


@needs_lucid
def test_what_a_function_closes_over_keeps_its_gradient(lucid):
    w = lucid.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (w * w).sum().backward()
    before = w.grad.copy()

    assert adjudge.examine(lambda x: lucid.sin(x) * w, lucid.tensor([0.5, 1.0, 2.0]), seed=1)

    assert np.array_equal(w.grad, before)


@needs_lucid
def test_what_a_function_closes_over_is_named_and_checked_where_asked_for(lucid):
    w = lucid.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = lucid.tensor([0.5, 1.0, 2.0])

    named = adjudge.examine(lambda x: lucid.sin(x) * w * w, x, seed=1)
    right = adjudge.examine(lambda x: lucid.sin(x) * w * w, x, seed=1, captured=True)
    wrong = adjudge.examine(lambda x: lucid.sin(x) * w * w.detach(), x, seed=1, captured=True)

    assert "closes over captured['w']" in str(named)
    assert right
    assert right.counts["comparisons"] == 2
    assert wrong.verdict is Verdict.FAIL
    assert w.data.tolist() == [1.0, 2.0, 3.0]


@needs_lucid
def test_rules_see_the_values_that_what_is_closed_over_held(lucid, backend):
    w, x = lucid.tensor([1.0, 2.0], requires_grad=True), lucid.tensor([0.5, 1.0])
    value = lucid.tensor([3.0, -4.0])

    def f(leaves):
        with backend.holding((w,), leaves[1:]):
            return (leaves[0] * w * w,)

    _, pullback = backend.closing_over((w,), 1).vjp(f, (x, value))

    of_x, of_w = pullback((lucid.ones_like(x),))
    assert of_x.data.tolist() == [9.0, 16.0]
    assert of_w.data.tolist() == [3.0, -8.0]


@needs_lucid
def test_a_module_is_checked_with_its_parameters(lucid):
    nn, random = lucid.nn, np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = lucid.tensor(random.normal(size=(5, 3)), dtype=lucid.Float32)
    before = [parameter.data.copy() for parameter in model.parameters()]

    class Wrong(nn.Linear):
        def forward(self, x):
            return x @ self.weight.T.detach() + self.bias

    assert adjudge.examine(model, x, seed=1).counts["comparisons"] == 5
    wrong = adjudge.examine(Wrong(3, 2), x, seed=1)
    assert wrong.verdict is Verdict.FAIL
    assert "parameters['weight']" in str(wrong)
    assert all(map(np.array_equal, before, [one.data for one in model.parameters()]))
    assert all(parameter.grad is None for parameter in model.parameters())


@needs_lucid
def test_running_statistics_are_as_before(lucid):
    norm = lucid.nn.BatchNorm2d(2)
    x = lucid.tensor(np.random.default_rng(0).normal(size=(3, 2, 2, 2)), dtype=lucid.Float32)

    for f in (norm, lambda x: norm(x)):
        assert adjudge.examine(f, x, seed=1)
        assert norm.running_mean.data.tolist() == [0.0, 0.0]


@needs_lucid
def test_gradients_are_recorded_within_no_grad_as_well(lucid):
    with lucid.no_grad():
        assert adjudge.examine(lucid.sin, lucid.tensor([0.3, -1.2]), seed=1)
        assert not lucid.grad_enabled()


@needs_lucid
def test_an_output_without_history_is_detached(lucid):
    report = adjudge.examine(lambda x: (lucid.sin(x), lucid.tensor(x.data**2)), lucid.ones(2) * 0.3)

    assert Status.DETACHED in {finding.status for finding in report.findings}


@needs_lucid
@pytest.mark.filterwarnings("ignore:Metal GPU acceleration")
def test_gradients_of_arrays_of_mlx_stay_there(lucid):
    x = lucid.tensor([0.3, -1.2], device="gpu", dtype=lucid.Float32)

    assert adjudge.examine(lambda x: lucid.sin(x) * x, x, seed=1)
    wrong = adjudge.examine(lambda x: lucid.sin(x) * x.detach(), x, seed=1)
    assert wrong.verdict is Verdict.FAIL


@needs_lucid
def test_a_gradient_of_another_dtype_is_found(lucid):
    report = adjudge.examine(lucid.abs, lucid.tensor([0.5, -1.0], dtype=lucid.Float32), seed=1)

    assert {finding.status for finding in report.findings} == {Status.WRONG_DTYPE}


@needs_lucid
def test_second_derivatives_are_refused_by_lucid_2_in_words(lucid):
    x = [lucid.tensor([0.3, -1.2])]

    with pytest.raises(
        NotSupportedError, match="Lucid 2 returns gradients that it does not record"
    ):
        adjudge_lucid.gradgradcheck(lambda x: (x**3).sum(), x)
    report = adjudge.examine(lambda x: x**3, x[0], order=2, seed=1)
    assert report.modes["R"] is Verdict.PASS
    assert report.modes["RR"] is Status.UNSUPPORTED


@needs_lucid
def test_the_examples_of_its_page_print_what_they_show():
    page = (HOW_TO / "lucid.md").read_text(encoding="utf-8")

    assert [without_numbers(text) for text in printed(page)] == [
        without_numbers(text) for _, text in examples(page)
    ]


@needs_lucid
def test_the_examples_of_lucids_readme(lucid):
    class TinyNet(lucid.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = lucid.nn.Linear(10, 4)

        def forward(self, x):
            return lucid.nn.functional.relu(self.fc(x))

    random = np.random.default_rng(0)
    batch = lucid.tensor(random.normal(size=(2, 10)), dtype=lucid.Float32)

    assert adjudge.examine(lambda x: (x * 2 + 1).sum(), lucid.tensor([1.0, 2.0, 3.0]), seed=1)
    assert adjudge.examine(TinyNet(), batch, seed=1)
    square = lucid.tensor(random.normal(size=(3, 3)))
    wrong = adjudge.examine(lambda x: (x @ x.T).sum(), square, seed=1)
    assert wrong.verdict is Verdict.FAIL  # by x.T: docs/findings.md


# ---------------------------------------------------------------- its wrong rules


PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| .*$", PAGE.split("## Lucid 2.16.0")[1].split("\n## ")[0], re.MULTILINE)


def test_the_functions_with_a_wrong_rule_are_as_many_as_the_pages_say():
    count = len({line.split(" | ")[0] for line in TABLE[2:]})

    assert f"of which {count} functions are wrong" in PAGE
    assert (HOW_TO / "lucid.md").read_text(encoding="utf-8").count(f"{count} functions of") == 1
    assert f"{count} of its functions" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------- the import


def in_fresh_python(code, path):
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"import sys; sys.path.insert(0, {str(path)!r})\n{code}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def package(path, text, **modules):
    """A package called lucid."""
    (path / "lucid").mkdir()
    (path / "lucid" / "__init__.py").write_text(text)
    for name, inside in modules.items():
        (path / "lucid" / f"{name}.py").write_text(inside)


LATER = "def f(x: Later) -> Later:\n    return x\n\nclass Later:\n    pass\n"


def test_annotations_of_lucid_may_name_what_is_defined_later(tmp_path):
    package(tmp_path, "from lucid.inner import f\n" + LATER, inner=LATER)
    (tmp_path / "other.py").write_text("def f(x: int): ...\nkind = f.__annotations__['x']\n")

    said = in_fresh_python(
        "import adjudge_lucid, lucid, other\nprint(lucid.f, other.kind)", tmp_path
    )

    assert "<function f" in said
    assert "<class 'int'>" in said  # no other module is compiled in another way


def test_bytecode_that_was_compiled_otherwise_is_not_taken(tmp_path):
    package(tmp_path, "def f(x: int): ...\n")
    code = "import lucid; print(lucid.f.__annotations__['x'])"

    assert "<class 'int'>" in in_fresh_python(code, tmp_path)
    deferred = in_fresh_python(f"import adjudge_lucid; {code}", tmp_path).strip()
    assert deferred == ("int" if sys.version_info < (3, 14) else "<class 'int'>")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import mlx_that_is_absent", "Lucid needs the package 'mlx_that_is_absent'"),
        ("raise OSError('no Metal')", "OSError: no Metal; version 2.16 does from Python 3.12 on"),
    ],
)
def test_an_import_that_fails_is_explained(tmp_path, text, words):
    package(tmp_path, text)

    said = in_fresh_python("from adjudge_lucid.importing import imported; imported()", tmp_path)

    assert words in said.splitlines()[-1]
    assert "adjudge[lucid]" in said.splitlines()[-1]


def test_the_adapter_without_lucid_says_what_installs_it(tmp_path):
    said = in_fresh_python(
        "sys.modules['lucid'] = None; from adjudge_lucid import LucidBackend", ""
    )

    assert "adjudge: install it: pip install 'adjudge[lucid]'" in said


def test_a_lucid_that_is_not_installed_is_absent_and_not_broken():
    code = (
        "sys.modules['lucid'] = None\nfrom adjudge_lucid.importing import imported\n"
        "try: imported()\n"
        "except ModuleNotFoundError as error: print(error.name)"
    )

    assert in_fresh_python(code, "") == "lucid\n"


# ---------------------------------------------------------------- the doors

SIGNATURE = {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3, "raise_exception": True}


@pytest.mark.parametrize(
    ("door", "first"),
    [("gradcheck", ["func", "inputs"]), ("gradgradcheck", ["func", "inputs", "grad_outputs"])],
)
def test_a_door_has_the_signature_of_lucid(door, first):
    parameters = inspect.signature(getattr(adjudge_lucid, door)).parameters

    assert [*parameters] == [*first, *SIGNATURE]
    assert {name: parameters[name].default for name in SIGNATURE} == SIGNATURE
    assert parameters.get("grad_outputs", parameters["eps"]).default in (None, 1e-6)


class OfTorch:
    """The names that the tests of the doors use."""

    name = "torch"

    @staticmethod
    def tensor(values, dtype="float64"):
        return torch.tensor(values, dtype=getattr(torch, dtype))


class OfLucid:
    name = "lucid"

    @staticmethod
    def tensor(values, dtype="float64"):
        lucid = importlib.import_module("lucid")
        return lucid.tensor(values, dtype=getattr(lucid, dtype.capitalize()))


ENGINES = [pytest.param(OfTorch, marks=needs_torch), pytest.param(OfLucid, marks=needs_lucid)]
X = [0.3, -1.2, 2.0]


def cube(x):
    return (x**3).sum()


def off_by(relative):
    """The sum of cubes, with a gradient that is too small by this part."""
    return lambda x: (x**3).sum() * (1 - relative) + (x.detach() ** 3).sum() * relative


@pytest.mark.parametrize("engine", ENGINES)
class TestGradcheck:
    def test_func_and_inputs(self, engine):
        x, y = engine.tensor(X), engine.tensor([1.0, 2.0, 0.5])

        assert adjudge_lucid.gradcheck(lambda x, y: (x * y * y).sum(), [x, y]) is True
        with pytest.raises(AssertionError, match=r"d inputs\[1\]"):
            adjudge_lucid.gradcheck(lambda x, y: (x * y * y.detach()).sum(), [x, y])

    @pytest.mark.parametrize("seed", range(10))
    def test_a_wrong_gradient_of_any_numbers_fails(self, engine, seed):
        x = engine.tensor(np.random.default_rng(seed).normal(size=4).tolist())

        assert adjudge_lucid.gradcheck(cube, [x])
        assert not adjudge_lucid.gradcheck(off_by(0.01), [x], raise_exception=False)

    def test_a_function_of_several_numbers_is_refused_as_by_lucid(self, engine):
        with pytest.raises(ValueError, match=r"requires a scalar-valued function \(got shape"):
            adjudge_lucid.gradcheck(lambda x: x**3, [engine.tensor(X)])

    def test_what_is_no_tensor_is_refused(self, engine):
        for returned in (None, (), 3.0):
            with pytest.raises(InputError, match=r"func returned .*\n.*return a tensor"):
                adjudge_lucid.gradcheck(lambda x, y=returned: y, [engine.tensor(X)])

    def test_of_several_outputs_the_first_counts(self, engine):
        x = engine.tensor(X)

        assert adjudge_lucid.gradcheck(lambda x: (cube(x), x * x.detach()), (x,))
        assert not adjudge_lucid.gradcheck(
            lambda x: ((x * x.detach()).sum(), cube(x)), (x,), raise_exception=False
        )

    def test_every_floating_input_is_checked_whether_marked_or_not(self, engine):
        x, y = engine.tensor(X), engine.tensor(X)
        x.requires_grad = True

        assert not adjudge_lucid.gradcheck(
            lambda x, y: (x * y.detach()).sum(), [x, y], raise_exception=False
        )

    def test_no_floating_input_is_refused(self, engine):
        with pytest.raises(InputError, match="no input is a floating tensor"):
            adjudge_lucid.gradcheck(cube, [engine.tensor([1, 2], "int64")])

    def test_eps_is_the_step_and_a_coarse_one_accuses_nobody(self, engine):
        for eps in (1e-6, 1e-1):
            seen = set()

            def watched(x, seen=seen):
                seen.add(round(float(x.detach().numpy()[0]), 9))
                return (x * x * x).sum()

            assert adjudge_lucid.gradcheck(watched, [engine.tensor([0.5])], eps=eps, atol=0.0)
            assert {0.5 - eps, 0.5 + eps} <= seen

    def test_atol_bounds_the_difference(self, engine):
        x = engine.tensor([1e-4])

        assert adjudge_lucid.gradcheck(off_by(0.5), [x])  # 3e-8, of which half is wrong
        assert not adjudge_lucid.gradcheck(off_by(0.5), [x], atol=1e-12, raise_exception=False)

    def test_rtol_bounds_the_relative_difference(self, engine):
        x = engine.tensor(X)

        assert adjudge_lucid.gradcheck(off_by(1e-4), [x])
        assert not adjudge_lucid.gradcheck(off_by(1e-4), [x], rtol=1e-6, raise_exception=False)
        assert adjudge_lucid.gradcheck(off_by(1e-2), [x], rtol=1e-1)

    def test_raise_exception(self, engine):
        x = [engine.tensor(X)]

        assert adjudge_lucid.gradcheck(off_by(0.1), x, raise_exception=False) is False
        with pytest.raises(AssertionError, match="MISMATCH"):
            adjudge_lucid.gradcheck(off_by(0.1), x)

    def test_single_precision_is_compared_with_differences_in_double(self, engine):
        x = [engine.tensor(X, "float32")]

        assert adjudge_lucid.gradcheck(cube, x)
        assert not adjudge_lucid.gradcheck(off_by(0.01), x, raise_exception=False)


def second_off_by(relative):
    """Cubes whose first derivative is right, and whose second is too small by this part."""
    third = 3 * relative
    return lambda x: x**3 * (1 - relative) + third * x.detach() ** 2 * x


@needs_torch
class TestGradgradcheck:
    def test_func_returns_tensors_of_any_shape(self):
        x = OfTorch.tensor(X)

        assert adjudge_lucid.gradgradcheck(lambda x: x**3, [x]) is True
        assert adjudge_lucid.gradgradcheck(lambda x: (cube(x), x * x), [x])
        with pytest.raises(AssertionError, match="MISMATCH"):
            adjudge_lucid.gradgradcheck(second_off_by(0.1), [x])
        assert adjudge_lucid.gradcheck(lambda x: x.sin().sum(), [x])

    def test_the_example_of_lucids_documentation(self):
        torch.manual_seed(0)
        x = torch.randn(3, requires_grad=True, dtype=torch.float64)

        assert adjudge_lucid.gradgradcheck(lambda x: (x**3).sum(), [x]) is True

    @pytest.mark.parametrize("seed", range(10))
    def test_a_wrong_second_derivative_of_any_numbers_fails(self, seed):
        x = OfTorch.tensor(np.random.default_rng(seed).normal(size=3).tolist())

        assert adjudge_lucid.gradgradcheck(lambda x: x**3, [x])
        assert not adjudge_lucid.gradgradcheck(second_off_by(0.01), [x], raise_exception=False)

    def test_it_is_the_sum_that_is_checked_and_ours_sees_what_cancels(self):
        x = OfTorch.tensor(X)

        def wrong(x):  # half the square of this difference has no second derivatives 1 and -1
            d = x[0] - x[1]
            return cube(x) + d.detach() * d - 0.5 * d.detach() ** 2

        assert adjudge_lucid.gradcheck(wrong, [x])
        assert adjudge_lucid.gradgradcheck(wrong, [x])
        assert not adjudge.gradgradcheck(wrong, x, raise_exception=False, seed=1)

    def test_grad_outputs_are_ignored_with_a_warning_and_ours_heeds_them(self):
        x, w = OfTorch.tensor(X), OfTorch.tensor([0.0, 1.0, 1.0])

        def wrong(x):  # in its first output alone
            return second_off_by(0.1)(x) * OfTorch.tensor([1.0, 0.0, 0.0]) + x

        with pytest.warns(UserWarning, match=r"grad_outputs is ignored.*adjudge.gradgradcheck"):
            assert not adjudge_lucid.gradgradcheck(wrong, [x], [w], raise_exception=False)

    @pytest.mark.parametrize(
        ("number", "passing", "failing"),
        [("rtol", 1e-1, 1e-4), ("atol", 1.0, 1e-9)],
    )
    def test_atol_and_rtol_bound_the_difference(self, number, passing, failing):
        x, strict = [OfTorch.tensor(X)], {"atol": 0.0, "rtol": 1e-6}
        f = second_off_by(0.02)

        assert adjudge_lucid.gradgradcheck(f, x, **strict | {number: passing})
        assert not adjudge_lucid.gradgradcheck(
            f, x, **strict | {number: failing}, raise_exception=False
        )

    @pytest.mark.parametrize("eps", [1e-6, 1e-1])
    def test_eps_is_the_step(self, eps):
        seen = set()

        def watched(x):
            seen.add(round(float(x.detach()[0]), 9))
            return x**3

        assert adjudge_lucid.gradgradcheck(watched, [OfTorch.tensor([0.5])], eps=eps)
        assert {0.5 - eps, 0.5 + eps} <= seen

    def test_raise_exception(self):
        x = [OfTorch.tensor(X)]

        assert adjudge_lucid.gradgradcheck(second_off_by(0.1), x, raise_exception=False) is False
        with pytest.raises(AssertionError, match="MISMATCH"):
            adjudge_lucid.gradgradcheck(second_off_by(0.1), x)


# ---------------------------------------------------------------- Lucid 3, which runs on macOS


BUILT_ON_LUCID = ("adjudge_lucid.backend", "adjudge_lucid.modules")


@pytest.fixture
def lucid_3(monkeypatch):
    """The adapter on PyTorch under the names that the source of Lucid 3.8.0 has. It shows that the
    branch for recorded gradients takes derivatives; what Lucid's own rules do it cannot show.
    """

    def tensor(values, device=None):
        return torch.tensor(values, device=device)

    def concatenate(tensors, axis=0):
        return torch.cat(tensors, axis)

    standing_in = types.ModuleType("lucid")
    vars(standing_in).update(
        tensor=tensor, concatenate=concatenate, Tensor=torch.Tensor, autograd=torch.autograd,
        is_grad_enabled=torch.is_grad_enabled, set_grad_enabled=torch._C._set_grad_enabled,
        permute=torch.permute, transpose=None, __getattr__=lambda name: getattr(torch, name),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "lucid", standing_in)
    for name in BUILT_ON_LUCID:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.8.0")
    yield importlib.import_module("adjudge_lucid.backend").LucidBackend()
    for name in BUILT_ON_LUCID:
        sys.modules.pop(name, None)


@needs_torch
def test_recorded_gradients_are_differentiated_again(lucid_3):
    x = OfTorch.tensor(X)

    report = adjudge.examine(lambda x: x.sin() * x, x, modes=["R", "RR"], backend=lucid_3, seed=1)
    wrong = adjudge.examine(second_off_by(0.1), x, modes=["RR"], backend=lucid_3, seed=1)

    assert report
    assert wrong.modes["RR"] is Verdict.FAIL


@needs_torch
def test_the_adapter_conforms_where_gradients_are_recorded(lucid_3):
    excused = dict.fromkeys(("jvp", "vmap", "compile"), "as Lucid 2")
    few = ["elementwise", "several inputs and outputs", "joined arrays", "reshaped and permuted"]

    assert_conforms(lucid_3, excused=excused, scenarios=few)
