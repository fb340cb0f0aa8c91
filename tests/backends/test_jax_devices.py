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


@pytest.mark.parametrize("rule", ["custom_vjp", "custom_jvp"])
def test_a_rule_of_jax_that_puts_its_result_elsewhere_is_found(rule):
    out = run(f"""
        def rule_to(device):
            put = lambda g: jax.device_put(g, device)
            if "{rule}" == "custom_vjp":
                f = jax.custom_vjp(jnp.sin)
                f.defvjp(lambda x: (jnp.sin(x), x), lambda x, w: (put(w * jnp.cos(x)),))
            else:
                f = jax.custom_jvp(jnp.sin)
                f.defjvp(lambda p, t: (jnp.sin(p[0]), put(jnp.cos(p[0]) * t[0])))
            return f
        x = jax.device_put(jnp.array([0.5, -1.0]), two)
        mode = "R" if "{rule}" == "custom_vjp" else "F"
        for device in (two, one):
            report = adjudge.examine(rule_to(device), x, modes=[mode])
            print(report.verdict, *[f.status for f in report.findings])
        """)
    assert out[:2] == ["PASS", "FAIL WRONG_DEVICE"]


def test_zeros_that_jax_makes_on_its_default_device_are_not_astray():
    """JAX commits them to no device: they go wherever the input is."""
    out = run("""
        x, y = (jax.device_put(jnp.array(v), two) for v in ([0.5, -1.0], [0.3]))
        modes = ["R", "F", "RR", "FR", "RF"]
        for f, inputs in (
            (lambda x, y: jnp.sin(x), (x, y)),
            (lambda x, y: (x, 2 * y), (x, y)),
            (lambda x, y: (jnp.sin(x) * y, jnp.ones(3)), (x, y)),
        ):
            report = adjudge.examine(f, inputs, modes=modes)
            print(report.verdict, len(report.findings))
        stopped = lambda x: (jnp.sin(x), jax.lax.stop_gradient(x))
        wrong = adjudge.examine(stopped, x, modes=["R", "F"])
        print(wrong.verdict, *sorted({str(f.status) for f in wrong.findings}))
        """)
    assert out[:4] == ["PASS 0", "PASS 0", "PASS 0", "FAIL MISMATCH"]


def test_an_array_that_was_put_nowhere_meets_captured_ones_on_another_device():
    out = run("""
        W = jax.device_put(jnp.array([2.0, 3.0]), two)
        x = jnp.array([0.5, 0.1])
        report = adjudge.examine(lambda x: jnp.sin(x) * W, x, order=2)
        print(report.verdict, x.committed, *report.ways)
        put = jax.device_put(x, one)
        try:
            adjudge.examine(lambda x: jnp.sin(x) * W, put)
        except ValueError as error:  # as without a check
            print("incompatible devices" in str(error))
        """)
    assert out[:2] == ["PASS False eager jit", "True"]


def test_one_gradient_in_the_wrong_place_among_several_is_named():
    out = run("""
        def product(back):
            put = jax.device_put
            return adjudge.ByHand(
                lambda x, y: jnp.sin(x) * put(y, one),
                vjp=lambda x, y, w: (w * jnp.cos(x) * put(y, one), put(w * jnp.sin(x), back)),
            )
        x, y = jax.device_put(jnp.array([0.5]), one), jax.device_put(jnp.array([0.7]), two)
        for back in (two, one):
            report = adjudge.examine(product(back), (x, y))
            print(report.verdict, *[(f.status, f.entry) for f in report.findings])
        """)
    assert "PASS" == out[0]
    assert "FAIL" == out[1].split()[0]
    assert "WRONG_DEVICE" in out[1]
    assert "inputs[1]" in out[1]


def test_sharded_arrays_are_checked_where_they_are():
    out = run("""
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        there = NamedSharding(Mesh(np.array(jax.devices()), ("a",)), PartitionSpec("a"))
        x = jax.device_put(jnp.array([0.5, -1.0, 0.3, 2.0]), there)
        report = adjudge.examine(lambda x: jnp.sum(x * jnp.sin(x)), x, modes=["R", "F", "RR"])
        print(report.verdict)
        """)
    assert "PASS" == out[0]


def test_adjudge_backends_lists_both():
    out = run("""
        from adjudge.cli import main
        print(main(["backends"]), name)
        """)
    line = next(line for line in out if line.startswith("jax "))
    assert out[-2].split()[1] in line
    assert len(line.split(",")[0].split()) >= 3
