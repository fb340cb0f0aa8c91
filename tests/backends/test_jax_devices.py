"""JAX with two devices of the CPU, which tests/conftest.py gives it."""

from contextlib import suppress

import numpy as np
import pytest

import adjudge
from adjudge import Status, Verdict
from adjudge.cli import main

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

pytestmark = [pytest.mark.backend("jax"), pytest.mark.usefixtures("x64")]


@pytest.fixture
def devices():
    """The default device, and another one."""
    one, two = jax.devices()
    return one, two


def statuses(report):
    return {finding.status for finding in report.findings}


def test_the_check_runs_on_the_device_that_is_named_and_the_default_is_as_before(devices):
    one, two = devices
    seen = []

    def f(x, b):
        if not isinstance(x, jax.core.Tracer):
            seen.append((x.device, b.device))
        return jnp.sin(x) * b

    x, b = jnp.array([0.5, -1.0]), jnp.array(2.0)
    report = adjudge.gradcheck(f, (x, b), device=str(two), modes=["R", "F"])

    assert set(seen) == {(two, two)}
    assert report.provenance.device == str(two)
    assert x.device == one
    assert jnp.zeros(1).device == one


def test_arrays_on_several_devices_stay_where_they_are(devices):
    x, y = (jax.device_put(jnp.array([0.5]), device) for device in devices)
    seen = []

    def f(x, y):
        if not isinstance(x, jax.core.Tracer):
            seen.append((x.device, y.device))
        return {"x": jnp.sin(x), "y": jnp.cos(y)}

    assert adjudge.gradcheck(f, (x, y))
    assert set(seen) == {devices}


def test_a_gradient_on_another_device_is_found(devices):
    one, two = devices
    rule = adjudge.ByHand(jnp.sin, vjp=lambda x, w: jax.device_put(w * jnp.cos(x), one))

    right = adjudge.examine(rule, jnp.array([0.5]))
    report = adjudge.examine(rule, jnp.array([0.5]), device=str(two))

    assert [right.verdict, report.verdict] == [Verdict.PASS, Verdict.FAIL]
    assert "WRONG_DEVICE" in report.headline


def test_an_unknown_device_is_named_with_those_that_there_are(devices):
    with pytest.raises(adjudge.InputError, match="device='gpu:7'") as raised:
        adjudge.gradcheck(jnp.sin, jnp.array([0.5]), device="gpu:7")

    # "cpu:0"; "TFRT_CPU_0" in JAX 0.4.36
    assert all(str(device) in str(raised.value) for device in devices)


@pytest.mark.parametrize("fails", [False, True])
def test_a_default_device_that_the_function_sets_is_as_before(devices, fails):
    def f(x):
        jax.config.update("jax_default_device", devices[1])
        if fails:
            raise KeyError("f")
        return jnp.sin(x)

    if fails:
        with pytest.raises(KeyError):
            adjudge.examine(f, jnp.array([0.5]))
    else:
        adjudge.examine(f, jnp.array([0.5]))

    assert jax.config.jax_default_device is None


@pytest.mark.parametrize("mode", ["R", "F"])
def test_a_rule_of_jax_that_puts_its_result_elsewhere_is_found(devices, mode, with_vjp, with_jvp):
    one, two = devices

    def rule_to(device):
        if mode == "R":
            return with_vjp(jnp.sin, lambda x, w: (jax.device_put(w * jnp.cos(x), device),))
        return with_jvp(jnp.sin, lambda x, v: jax.device_put(v * jnp.cos(x), device))

    x = jax.device_put(jnp.array([0.5, -1.0]), two)
    right, wrong = (adjudge.examine(rule_to(device), x, modes=[mode]) for device in (two, one))

    assert (right.verdict, statuses(right)) == (Verdict.PASS, set())
    assert (wrong.verdict, statuses(wrong)) == (Verdict.FAIL, {Status.WRONG_DEVICE})


def test_zeros_that_jax_makes_on_its_default_device_are_not_astray(devices):
    """JAX commits them to no device: they go wherever the input is."""
    x, y = (jax.device_put(jnp.array(v), devices[1]) for v in ([0.5, -1.0], [0.3]))
    first = ["R", "F"]
    for f, modes in (
        (lambda x, y: jnp.sin(x), [*first, "RR", "FR", "RF"]),
        (lambda x, y: (x, 2 * y), first),
        (lambda x, y: (jnp.sin(x) * y, jnp.ones(3)), first),
    ):
        report = adjudge.examine(f, (x, y), modes=modes)
        assert report.verdict is Verdict.PASS
        assert all(finding.status is Status.UNCHECKED for finding in report.findings)

    def stopped(x):
        return jnp.sin(x), jax.lax.stop_gradient(x)

    wrong = adjudge.examine(stopped, x, modes=["R", "F"])
    assert (wrong.verdict, statuses(wrong)) == (Verdict.FAIL, {Status.MISMATCH})


def test_an_array_that_was_put_nowhere_meets_captured_ones_on_another_device(devices):
    one, two = devices
    W = jax.device_put(jnp.array([2.0, 3.0]), two)
    x = jnp.array([0.5, 0.1])

    report = adjudge.examine(lambda x: jnp.sin(x) * W, x, order=1)

    assert report.verdict is Verdict.PASS
    assert not x.committed
    assert list(report.ways) == ["eager", "jit"]
    with pytest.raises(ValueError, match="incompatible devices"):  # as without a check
        adjudge.examine(lambda x: jnp.sin(x) * W, jax.device_put(x, one))


def test_one_gradient_in_the_wrong_place_among_several_is_named(devices):
    one, two = devices
    put = jax.device_put

    def product(back):
        return adjudge.ByHand(
            lambda x, y: jnp.sin(x) * put(y, one),
            vjp=lambda x, y, w: (w * jnp.cos(x) * put(y, one), put(w * jnp.sin(x), back)),
        )

    inputs = put(jnp.array([0.5]), one), put(jnp.array([0.7]), two)
    right, wrong = (adjudge.examine(product(back), inputs) for back in (two, one))

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert "WRONG_DEVICE" in wrong.headline
    assert "inputs[1]" in wrong.headline


def test_sharded_arrays_are_checked_where_they_are(devices):
    there = NamedSharding(Mesh(np.array(devices), ("a",)), PartitionSpec("a"))
    x = jax.device_put(jnp.array([0.5, -1.0, 0.3, 2.0]), there)

    report = adjudge.examine(lambda x: jnp.sum(x * jnp.sin(x)), x, modes=["R", "F"])

    assert report.verdict is Verdict.PASS


def test_committed_and_sharded_arrays_keep_their_place(devices):
    seen = set()

    def f(x):
        if not isinstance(x, jax.core.Tracer):
            seen.add((str(x.sharding), x.committed))
        return jnp.sin(x)

    split = NamedSharding(Mesh(np.array(devices), ("i",)), PartitionSpec("i"))
    for place, name in ((devices[1], str(devices[1])), (split, "")):
        x = jax.device_put(jnp.array([0.5, -1.5, 2.0, 1.0]), place)
        seen.clear()
        report = adjudge.gradcheck(f, (x,), check_forward_ad=True, seed=0)
        assert seen == {(str(x.sharding), True)}
        assert name in report.provenance.device
        assert adjudge.gradgradcheck(f, (x,), seed=0)


def test_adjudge_backends_lists_both(devices, capsys):
    main(["backends"])

    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("jax "))
    assert all(str(device) in line for device in devices)
