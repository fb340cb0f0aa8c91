"""What the doors to each engine have in common: signatures, answers, and what they import."""

import importlib
import inspect
import subprocess
import sys

import numpy as np
import pytest

import adjudge

AUTOMATIC = {"torch": {"eps", "atol", "rtol"}, "jax": {"eps"}}
"""What a door finds out by itself where it is left out, and its peer has a number for."""

DOORS = [
    ("torch", "torch.autograd", "gradcheck"),
    ("torch", "torch.autograd", "gradgradcheck"),
    ("jax", "jax.test_util", "check_grads"),
    ("jax", "jax.test_util", "check_jvp"),
    ("jax", "jax.test_util", "check_vjp"),
]


def on(engine, *values):
    return pytest.param(engine, *values, marks=pytest.mark.backend(engine))


@pytest.mark.parametrize(("engine", "module", "name"), [on(*door) for door in DOORS])
def test_a_door_has_the_signature_of_its_peer_and_finds_out_its_numbers(engine, module, name):
    door = inspect.signature(getattr(importlib.import_module(f"adjudge_{engine}"), name)).parameters
    peer = inspect.signature(getattr(importlib.import_module(module), name)).parameters

    assert [(p.name, p.kind) for p in peer.values()] == [(p.name, p.kind) for p in door.values()]
    different = {key for key in peer if peer[key].default != door[key].default}
    # of the three signatures of JAX one has no number for `eps`
    assert different <= AUTOMATIC[engine]
    assert different == AUTOMATIC[engine] or engine == "jax"
    assert {door[key].default for key in AUTOMATIC[engine]} == {None}


OTHERS = [
    ("scipy", "check_grad"),
    on("tensorflow", "compute_gradient"),
    on("lucid", "gradcheck"),
    on("lucid", "gradgradcheck"),
]


@pytest.mark.parametrize(
    ("engine", "name"), [*OTHERS, *(on(engine, name) for engine, _, name in DOORS)]
)
def test_a_door_says_before_any_work_what_it_cannot_take(engine, name):
    door = getattr(importlib.import_module(f"adjudge_{engine}"), name)
    function, *parameters = inspect.signature(door).parameters.values()
    optional = [p.name for p in parameters if p.default is not p.empty]

    with pytest.raises(TypeError, match=f"Did you mean {optional[0]!r}"):
        door(**{optional[0] + "s": 1})
    required = [() for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    with pytest.raises(adjudge.InputError, match=f"{function.name}= is None"):
        door(None, *required)


@pytest.mark.parametrize(
    ("engine", "name", "words"),
    [
        on("torch", "gradcheck", "gradcheck(func, (x, y))"),
        on("torch", "gradgradcheck", "gradgradcheck(func, (x, y))"),
        on("jax", "check_grads", "check_grads(f, (x, y), order)"),
        on("jax", "check_vjp", "check_vjp(f, f_vjp, (x, y))"),
        on("jax", "check_jvp", "check_jvp(f, f_jvp, (x, y))"),
        on("lucid", "gradcheck", "gradcheck(func, (x, y))"),
        on("lucid", "gradgradcheck", "gradgradcheck(func, (x, y))"),
        on("tensorflow", "compute_gradient", "compute_gradient(f, (x, y))"),
    ],
)
def test_a_door_says_how_several_inputs_are_passed(engine, name, words):
    door = getattr(importlib.import_module(f"adjudge_{engine}"), name)
    functions = [np.sin] * words.count("f_") + [np.sin]

    with pytest.raises((TypeError, adjudge.InputError)) as caught:
        door(*functions, *[np.ones(2)] * 3)

    assert f"several inputs are one tuple: {words}" in str(caught.value)


ANSWERS = {"torch": ("gradcheck", {}), "jax": ("check_grads", {"order": 1})}


@pytest.mark.parametrize("adjudge_backend", ["torch", "jax"], indirect=True)
def test_a_right_derivative_passes_and_a_wrong_one_is_an_assertion_with_a_report(
    adjudge_backend, with_jvp
):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    verb, options = ANSWERS[name]
    check = getattr(importlib.import_module(f"adjudge_{name}"), verb)
    (x,) = adjudge_backend.arrays([0.5, -1.5, 2.0])
    if name == "torch":
        x.requires_grad_()
        options = {"check_forward_ad": True}

    check(xp.sin, (x,), **options)
    for factor in (-1.0, 2.0, 0.0, 1 + 1e-6):
        wrong = with_jvp(xp.sin, lambda x, v, c=factor: c * v * xp.cos(x))
        with pytest.raises(AssertionError) as raised:
            check(wrong, (x,), **options)
        assert isinstance(raised.value, adjudge.GradcheckError)
        assert raised.value.report.verdict is adjudge.Verdict.FAIL
        assert str(raised.value).startswith("FAIL")


LAZY = """
import importlib, sys, numpy as np, adjudge
adjudge.gradcheck(adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), (np.ones(2),))
for engine, verb in (("torch", "gradcheck"), ("jax", "check_grads")):
    names = engine, f"adjudge_{engine}", f"adjudge_{engine}.door"
    print([name in sys.modules for name in names])
    adapter = importlib.import_module(names[1])
    print([name in sys.modules for name in names])
    getattr(adapter, verb)
    print(names[2] in sys.modules)
"""


@pytest.mark.backend("torch", "jax")
def test_an_engine_is_imported_for_its_arrays_and_a_door_for_those_who_open_it():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LAZY], capture_output=True, text=True, check=True
    )

    lazily = ["[False, False, False]", "[True, True, False]", "True"]
    assert done.stdout.splitlines() == [*lazily, *lazily]
