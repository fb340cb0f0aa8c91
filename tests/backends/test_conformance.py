"""Our own adapters under the conformance kit, one test a check."""

import functools
import importlib
import importlib.util

import pytest

from adjudge.conformance import SCENARIOS, assert_conforms, checks
from adjudge.engine.registry import backend_named

ENGINES = {"array_api_strict": "array_api_strict", "torch": "torch", "torch.func": "torch",
           "jax": "jax"}  # fmt: skip
"""What is tested, and the package that it needs. NumPy is checked all at once, below."""

EXCUSED = {"torch": {"FF": "PyTorch's forward mode does not nest; torch.func does it"}}


@functools.cache
def engine(name):
    backend = backend_named(ENGINES[name])
    return backend.ways()[0] if name == "torch.func" else backend


@functools.cache
def global_state(name):
    """What changes the global state of the engine, and what reads it."""
    if ENGINES[name] != "torch":
        return {}
    torch = importlib.import_module("torch")
    return {
        "random numbers": (lambda: torch.rand(1), None),
        "default dtype": (
            lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype,
        ),
        "default device": (
            lambda: torch.set_default_device("meta"), torch.get_default_device,
        ),
        "deterministic algorithms": (
            lambda: torch.use_deterministic_algorithms(True),
            torch.are_deterministic_algorithms_enabled,
        ),
    }  # fmt: skip


def already_shown(name, check):
    """What another check shows by the same code.

    A wrong rule is planted in place of an engine's derivatives, and a fault in what they return, so
    that both ask about arrays alone: the two ways of PyTorch have the same, and array_api_strict
    has those of NumPy, where every wrong rule is planted. PyTorch sees the first wrong rule of each
    scenario and those of second order, and every fault that the kit plants in each.
    JAX, which compiles each of them, sees those rules for one scenario of each kind of array, and
    the faults of elementwise functions (the next test has all of them), of half precision, and
    those that elementwise functions do not have. What it does on its second device, and what it
    takes for a cotangent or a tangent, is the same for every function: one of each kind of array is
    asked for. Every scenario has its verdict on all engines.
    """
    scenario, _, what = check.partition("-")
    if name in ("torch.func", "array_api_strict") and (
        "-wrong rule: " in check or "-fault " in check
    ):
        return True
    rule, fault = (what.partition(f"-{word}")[2] for word in ("wrong rule: ", "fault "))
    if rule and rule not in FIRST_RULES:
        return True
    if name == "torch.func":
        return check.startswith(("names", "refusals", "arrays-", "environment-"))
    if name != "jax":
        return False
    if fault:
        return scenario not in ("elementwise", "low precision") and fault not in NOT_ELEMENTWISE
    if rule in SECOND_ORDER_RULES:
        return False
    once = bool(rule) or "-on cpu:1" in check or what.endswith(("-vjp", "-jvp"))
    return once and scenario not in EACH_KIND


SECOND_ORDER_RULES = {
    rule.name for scenario in SCENARIOS for rule in scenario.wrong_rules if rule.mode == "RR"
}
FIRST_RULES = {scenario.wrong_rules[0].name for scenario in SCENARIOS} | SECOND_ORDER_RULES
NOT_ELEMENTWISE = ("wrong device", "transpose", "conjugate")
EACH_KIND = (
    "elementwise", "several inputs and outputs", "squared modulus", "captured constant",
    "empty array", "no dimensions", "integer and boolean inputs",
)  # fmt: skip


def asked():
    for name, package in ENGINES.items():
        mark = pytest.mark.backend(package)
        if importlib.util.find_spec(package) is None:
            yield pytest.param(name, None, id=name, marks=mark)
            continue
        excused = EXCUSED.get(name)
        for check in checks(engine(name), excused=excused, disturb=global_state(name)):
            if already_shown(name, check.id):
                continue
            yield pytest.param(name, check, id=f"{name}-{check.id}", marks=mark)


CASES = list(asked())


@pytest.mark.parametrize(("name", "check"), CASES)
def test_the_adapter_conforms(name, check, monkeypatch):
    if ENGINES[name] == "torch" and check.id == "capability-compile":
        # What is asked of the adapter is as well seen of what the compiler recorded: the C++ that
        # it would write is compiled for ten seconds.
        torch = importlib.import_module("torch")
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    check.run()


def shown_in_double(check):
    """Whether this is an error in single precision that is planted in double precision as well.
    Those that stay are one of each kind: of the numbers, of the rules, of the dtype.
    """
    _, _, what = check.partition("-float32-")
    return what.startswith(("fault ", "wrong rule: ")) and what not in (
        "fault factor", "fault wrong dtype", "wrong rule: sign", "wrong rule: sign of the jvp",
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.backend("jax")
def test_jax_conforms_in_every_dtype_and_with_every_fault():
    before = {check.id for check in checks("jax")}
    more = [
        check
        for check in checks("jax", scenarios=["elementwise"], thorough=True)
        if check.id not in before and not shown_in_double(check.id)
    ]

    assert sum("float64-fault" in check.id for check in more) >= 8
    assert any("float32-fault wrong dtype" in check.id for check in more)
    for check in more:
        check.run()


@pytest.mark.backend("jax")
def test_jax_is_asked_about_two_devices():
    assert len(backend_named("jax").arrays.devices()) == 2
    assert sum("on cpu:1" in case.id for case in CASES) == len(EACH_KIND)


def test_all_at_once_says_how_much_was_compared():
    summary = assert_conforms("numpy")

    assert summary.comparisons > 10 * summary.checks > 1000
    assert summary.scenarios == 32
    assert str(summary).startswith("numpy conforms: ")
