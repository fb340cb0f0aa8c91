"""examples/adapter_template.py, copied as an author would, onto an engine with names of its own."""

import importlib
import re
import sys
import types
from pathlib import Path

import pytest
from frameworks import torch

from adjudge.cli import FAILED, OK, main
from adjudge.conformance import SCENARIOS
from adjudge.conformance.closed_forms import ClosedForms

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "examples" / "adapter_template.py"
LACKING = ("jvp", "RR", "vmap", "compile", "complex", "linalg")
EACH_NAME = (
    "elementwise", "reductions", "logsumexp", "matrix product", "joined arrays",
    "reshaped and permuted", "indexing with repeats", "where", "integer and boolean outputs",
)  # fmt: skip
EXCUSES = [f"--excuse={name}=the engine has it not" for name in LACKING]

pytestmark = pytest.mark.backend("torch")


def engine():
    """PyTorch's reverse mode behind functions that the Array API calls otherwise, or not at all."""
    module = types.ModuleType("myengine")

    def gradients(y, x, w):
        moving = [(one, c) for one, c in zip(y, w, strict=True) if one.requires_grad]
        if not moving:
            return (None,) * len(x)
        ends, cotangents = zip(*moving, strict=True)
        return torch.autograd.grad(ends, x, cotangents, retain_graph=True, allow_unused=True)

    def reduced(function):
        def of(x, axis=None, *keepdims):
            return function(x) if axis is None else function(x, axis, *keepdims)

        return of

    vars(module).update(
        {name: getattr(torch, name) for name in (
            "zeros", "zeros_like", "stack", "where", "sin", "exp", "log", "matmul", "argmax",
            "reshape", "Tensor", "float64", "float32", "int64", "bool",
        )},
        sum=reduced(torch.sum),
        mean=reduced(torch.mean),
        transpose=torch.permute,
        join=lambda arrays, axis: torch.cat(list(arrays), axis),
        pick=lambda x, indices, axis: torch.index_select(x, axis, indices),
        tensor=torch.tensor,
        to_numpy=lambda x: x.detach().numpy(),
        recorded=lambda x: x.detach().clone().requires_grad_(),
        gradients=gradients,
    )  # fmt: skip
    return module


@pytest.fixture
def copied(monkeypatch, tmp_path):
    """Makes a copy of the template, with one thing written otherwise, for `adjudge conform`."""
    monkeypatch.setitem(sys.modules, "myengine", engine())
    monkeypatch.syspath_prepend(tmp_path)

    def copy(before="", after="", *, scenarios=("elementwise",)):
        text = TEMPLATE.read_text(encoding="utf-8")
        assert before in text
        (tmp_path / "an_adapter.py").write_text(text.replace(before, after) if before else text)
        sys.modules.pop("an_adapter", None)
        importlib.invalidate_caches()
        return main(["conform", "an_adapter:MyBackend", *EXCUSES,
                     *(f"--scenario={name}" for name in scenarios)])  # fmt: skip

    yield copy
    sys.modules.pop("an_adapter", None)


def test_the_template_has_less_than_60_lines_to_fill_in():
    lines = [line for line in TEMPLATE.read_text(encoding="utf-8").splitlines() if line.strip()]

    assert len(lines) < 60


def test_it_conforms_where_only_calls_of_the_engine_were_written(copied, capsys):
    code = copied(scenarios=EACH_NAME)

    told = capsys.readouterr().out
    assert code == OK, told
    assert re.match(rf"myengine conforms: .*, {len(EACH_NAME)} scenarios, excused: jvp", told)


def test_these_scenarios_use_every_name_that_the_template_has_to_offer():
    excused = set(LACKING)
    used = {
        name
        for scenario in SCENARIOS
        if scenario.needs.isdisjoint(excused)
        for name in ClosedForms(scenario).names
    }

    assert used == {name for s in SCENARIOS if s.name in EACH_NAME for name in ClosedForms(s).names}


def test_names_that_xp_lacks_are_told_first_and_at_once(copied, capsys):
    both = ("elementwise", "joined arrays", "reshaped and permuted")

    code = copied('"permute_dims"', '"permute"', scenarios=both)

    found, namespace, *_ = capsys.readouterr().out.splitlines()
    assert code == FAILED
    assert re.search(r": 1 of \d+ checks fail, for one cause$", found)
    assert namespace == "  namespace: xp lacks permute_dims (reshaped and permuted)"


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (", self.arrays.zeros_for_absent(w, y))", ", w)", "raises RuntimeError"),
        ("myengine.gradients(", "(lambda *a: [2 * g for g in myengine.gradients(*a)])(", "J* w"),
        ("(leaf) for leaf in x)", "(leaf * 1.001) for leaf in x)", "return the value of f at x"),
    ],
)
def test_a_mistake_in_a_copy_is_told_once_with_a_count(copied, capsys, before, after, cause):
    code = copied(before, after)

    told = capsys.readouterr().out
    assert code == FAILED
    assert told.count(cause) == 1
    assert " more for this cause: " in told
