"""JAX with two devices of the CPU, which it has from its start on: a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.backend("jax")

BEGIN = """
import jax, jax.numpy as jnp, numpy as np, adjudge
jax.config.update("jax_enable_x64", True)
one, two = jax.devices()
name = str(two)
"""


def run(body):
    """What the code prints where JAX has two devices."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(body)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_the_check_runs_on_the_device_that_is_named_and_the_default_is_as_before():
    out = run("""
        seen = []
        def f(x, b):
            if not isinstance(x, jax.core.Tracer):
                seen.append((x.device, b.device))
            return jnp.sin(x) * b
        x, b = jnp.array([0.5, -1.0]), jnp.array(2.0)
        report = adjudge.gradcheck(f, (x, b), device=name, modes=["R", "F", "RR"])
        print(set(seen) == {(two, two)}, report.provenance.device == name, x.device == one)
        print(jnp.zeros(1).device == one)
        """)
    assert out[:2] == ["True True True", "True"]


def test_arrays_on_several_devices_stay_where_they_are():
    out = run("""
        x, y = jax.device_put(jnp.array([0.5]), one), jax.device_put(jnp.array([0.7]), two)
        seen = []
        def f(x, y):
            if not isinstance(x, jax.core.Tracer):
                seen.append((x.device, y.device))
            return {"x": jnp.sin(x), "y": jnp.cos(y)}
        print(bool(adjudge.gradcheck(f, (x, y))), set(seen) == {(one, two)})
        """)
    assert out[0] == "True True"


def test_a_gradient_on_another_device_is_found():
    out = run("""
        def astray(x, w):
            return jax.device_put(w * jnp.cos(x), one)
        rule = adjudge.ByHand(jnp.sin, vjp=astray)
        right = adjudge.examine(rule, jnp.array([0.5]))
        report = adjudge.examine(rule, jnp.array([0.5]), device=name)
        print(right.verdict, report.verdict)
        print(report.headline)
        """)
    assert out[0] == "PASS FAIL"
    assert "WRONG_DEVICE" in out[1]


def test_an_unknown_device_is_named_with_those_that_there_are():
    out = run("""
        try:
            adjudge.gradcheck(jnp.sin, jnp.array([0.5]), device="gpu:7")
        except adjudge.InputError as error:
            print(error)
        """)
    assert "device='gpu:7'" in out[0]
    assert "CPU_0" in out[0] or "cpu:0" in out[0]


@pytest.mark.parametrize("fails", [False, True])
def test_a_default_device_that_the_function_sets_is_as_before(fails):
    out = run(f"""
        def f(x):
            jax.config.update("jax_default_device", two)
            if {fails}:
                raise KeyError("f")
            return jnp.sin(x)
        try:
            adjudge.examine(f, jnp.array([0.5]))
        except KeyError:
            print("raised")
        print(jax.config.jax_default_device)
        """)
    assert out[: 1 + fails] == ["raised"] * fails + ["None"]
