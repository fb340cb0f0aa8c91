"""Arrays of JAX: devices and sharding kept, nothing written, two frameworks refused, lazy."""

import subprocess
import sys

import numpy as np
import pytest

from adjudge import examine, gradcheck, gradgradcheck
from adjudge.errors import MixedFrameworksError

pytestmark = pytest.mark.backend("jax")

TWO_DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, numpy as np, adjudge
first, second = jax.devices()
"""


def in_fresh_python(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def x(double):
    return double(np.array([0.5, -1.5, 2.0]))


# ---------------------------------------------------------------- devices


def test_committed_and_sharded_arrays_keep_their_place():
    code = """
seen = set()
def f(x):
    if not isinstance(x, jax.core.Tracer):
        seen.add((str(x.sharding), x.committed))
    return jnp.sin(x)

mesh = jax.sharding.Mesh(np.array([first, second]), ("i",))
split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
for place in (second, split):
    x = jax.device_put(jnp.array([0.5, -1.5, 2.0, 1.0]), place)
    seen.clear()
    report = adjudge.gradcheck(f, (x,), check_forward_ad=True, seed=0)
    assert seen == {(str(x.sharding), True)}, seen
    assert adjudge.gradgradcheck(f, (x,), seed=0)
    print(report.provenance.device)
"""

    devices = in_fresh_python(TWO_DEVICES + code).splitlines()

    assert "1" in devices[0]
    assert len(devices) == 2


# ---------------------------------------------------------------- the caller's arrays


def test_arrays_of_the_caller_are_what_they_were(jax, jnp, x):
    n = jnp.arange(3)
    before = np.array(x).tobytes(), np.array(n).tobytes()

    gradcheck(lambda x, n: jnp.sin(x) * n, (x, n), check_forward_ad=True)
    gradgradcheck(lambda x, n: jnp.sin(x) * n, (x, n))

    assert (np.array(x).tobytes(), np.array(n).tobytes()) == before
    assert not x.is_deleted()


def test_numpy_constants_are_handed_over_as_copies(jnp, x):
    constant = np.array([1.0, 2.0, 3.0])

    def f(x, constant):
        constant += 1.0
        return x * jnp.asarray(constant[0])

    report = examine(f, (x, constant), wrt=0, seed=0)

    assert constant.tolist() == [1.0, 2.0, 3.0]
    assert report


# ---------------------------------------------------------------- two frameworks


def test_arrays_of_jax_and_numpy_together_need_wrt(jnp, x):
    constant = np.array([1.0, 2.0, 3.0])

    def f(x, c):
        return x * jnp.asarray(c)

    with pytest.raises(MixedFrameworksError) as raised:
        gradcheck(f, (x, constant))

    message = str(raised.value)
    assert "inputs[0] belongs to jax and inputs[1] to numpy" in message
    assert "wrt=" in message
    assert gradcheck(f, (x, constant), wrt=0)


def test_numpy_integers_and_python_numbers_are_constants(jnp, x):
    report = gradcheck(
        lambda x, n, a, b: x * jnp.asarray(n) * a * b,
        (x, np.arange(3), 2.0, np.float64(3)),
        seed=0,
        mode="full",
    )

    assert report.counts["comparisons"] == 9


# ---------------------------------------------------------------- imports


def test_importing_the_library_imports_no_jax():
    code = "import sys, adjudge; print(any(m.split('.')[0] == 'jax' for m in sys.modules))"

    assert in_fresh_python(code).split() == ["False"]


def test_checking_numpy_arrays_imports_no_jax():
    code = (
        "import sys, numpy as np, adjudge; "
        "adjudge.gradcheck(adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), (np.ones(2),)); "
        "print(any(m.split('.')[0] == 'jax' for m in sys.modules))"
    )

    assert in_fresh_python(code).split() == ["False"]


def test_importing_the_adapter_imports_no_verbs():
    code = (
        "import sys, adjudge_jax; print('adjudge_jax.door' in sys.modules); "
        "adjudge_jax.check_grads; print('adjudge_jax.door' in sys.modules)"
    )

    assert in_fresh_python(code).split() == ["False", "True"]


def test_a_name_that_the_adapter_has_not_is_an_attribute_error():
    import adjudge_jax

    with pytest.raises(AttributeError, match="check_gradients"):
        _ = adjudge_jax.check_gradients
