"""Pytrees of JAX as inputs and outputs: every leaf is named by its path, others pass through."""

import dataclasses
from collections import namedtuple

import numpy as np
import pytest

from adjudge import GradcheckError, InputError, examine, gradcheck, gradgradcheck

pytestmark = pytest.mark.backend("jax")

Pair = namedtuple("Pair", "first second")


@pytest.fixture
def w(double):
    return double(np.array([[0.3, 1.0, -0.7], [0.2, -0.4, 0.9]]))


@pytest.fixture
def product(jnp, with_vjp):
    """`w @ x`, right, or with one entry of the gradient of `w` lost."""

    def make(*, wrong):
        def backward(w, x, g):
            of_w = jnp.outer(g, x)
            return of_w.at[1, 2].set(0.0) if wrong else of_w, w.T @ g

        return with_vjp(lambda w, x: w @ x, backward)

    return make


@pytest.fixture
def layer(jax):
    """A dataclass that is registered with JAX."""

    @dataclasses.dataclass
    class Layer:
        weight: object
        bias: object
        name: str = "layer"

    jax.tree_util.register_dataclass(Layer, ["weight", "bias"], ["name"])
    return Layer


def wrong_entries(f, inputs, **options):
    with pytest.raises(GradcheckError) as raised:
        gradcheck(f, inputs, seed=0, **options)
    return {(entry.of, entry.wrt) for entry in raised.value.report.entries}


def test_containers_are_named_by_path(product, x, w):
    def f(wrong):
        return lambda pair, d: {"y": Pair(product(wrong=wrong)(pair.first, d["x"]), [pair.second])}

    inputs = (Pair(w, x), {"x": x})

    assert gradcheck(f(False), inputs, seed=0)
    assert wrong_entries(f(True), inputs) == {
        ("out['y'].first[1]", "inputs[0].first[1, 2]"),
    }


def test_a_registered_dataclass_is_named_by_its_fields(layer, product, x, w):
    def f(wrong):
        return lambda m, x: layer(product(wrong=wrong)(m.weight, x), m.bias**2, m.name)

    inputs = (layer(w, x[:2]), x)

    assert gradcheck(f(False), inputs, seed=0)
    assert wrong_entries(f(True), inputs) == {("out.weight[1]", "inputs[0].weight[1, 2]")}


def test_a_registered_class_without_keys_is_named_by_position(jax, product, x, w):
    @jax.tree_util.register_pytree_node_class
    class Bag:
        def __init__(self, *parts):
            self.parts = parts

        def tree_flatten(self):
            return self.parts, None

        @classmethod
        def tree_unflatten(cls, _, parts):
            return cls(*parts)

    inputs = (Bag(w, x),)

    assert gradcheck(lambda bag: product(wrong=False)(*bag.parts), inputs, seed=0)
    ((_, wrt),) = wrong_entries(lambda bag: product(wrong=True)(*bag.parts), inputs)
    assert wrt == "inputs[0][<flat index 0>][1, 2]"  # JAX's own word for it


def test_an_equinox_module_is_named_by_its_attributes(jax, product, x):
    eqx = pytest.importorskip("equinox", reason="pip install equinox")
    linear = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    single = x.astype("float32")

    def f(wrong):
        return lambda m, x: product(wrong=wrong)(m.weight, x) + m.bias

    assert gradcheck(lambda m, x: m(x), (linear, single), seed=0, check_forward_ad=True)
    assert wrong_entries(f(True), (linear, single)) == {("out[1]", "inputs[0].weight[1, 2]")}


def test_an_equinox_module_with_a_function_inside_is_checked(jax, x, double):
    eqx = pytest.importorskip("equinox", reason="pip install equinox")
    network = eqx.nn.MLP(3, 1, 2, 1, activation=jax.numpy.tanh, key=jax.random.key(0))
    wide = jax.tree.map(lambda a: double(np.float64(a)) if eqx.is_array(a) else a, network)

    report = gradcheck(lambda m, x: m(x), (wide, x), seed=0, mode="full")

    assert report.counts["comparisons"] == 2 * 3 + 2 + 2 + 1 + 3


def test_a_flax_struct_is_named_by_its_fields(jax, product, x, w):
    struct = pytest.importorskip("flax.struct", reason="pip install flax")

    @struct.dataclass
    class State:
        weight: object
        step: int = struct.field(pytree_node=False, default=3)

    def f(wrong):
        return lambda s, x: State(product(wrong=wrong)(s.weight, x), s.step)

    assert gradcheck(f(False), (State(w), x), seed=0)
    assert wrong_entries(f(True), (State(w), x)) == {("out.weight[1]", "inputs[0].weight[1, 2]")}


def test_the_state_of_an_nnx_module_is_named_by_its_keys(product, x):
    nnx = pytest.importorskip("flax.nnx", reason="pip install flax")
    module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    graph, state = nnx.split(module)
    single = x.astype("float32")

    def f(wrong):
        return lambda s, x: product(wrong=wrong)(s["kernel"].get_value().T, x)

    assert gradcheck(lambda m, x: m(x), (module, single), seed=0)
    assert gradcheck(lambda s, x: nnx.merge(graph, s)(x), (state, single), seed=0)
    ((_, wrt),) = wrong_entries(f(True), (state, single))
    assert wrt == "inputs[0]['kernel'].value[2, 1]"


# ---------------------------------------------------------------- leaves that are not checked


def test_integers_booleans_keys_and_none_pass_through(jax, jnp, x):
    seen = []

    def f(x, count, mask, key, nothing, word):
        seen.append((count.dtype, mask.dtype, nothing, word))
        noise = jax.random.normal(key, x.shape, x.dtype)
        return jnp.where(mask, x * count * noise, x), key, count, mask, None, word

    inputs = (x, jnp.arange(3), jnp.array([True, False, True]), jax.random.key(3), None, "word")

    first = gradcheck(f, inputs, check_forward_ad=True, seed=0, mode="full")
    second = gradgradcheck(f, inputs, check_fwd_over_rev=True, seed=0)

    assert first.counts["comparisons"] == 2 * 9
    assert set(second.modes) == {"R", "RR", "FR"}
    assert set(seen) == {(jnp.arange(3).dtype, jnp.dtype(bool), None, "word")}


def test_a_wrong_gradient_beside_leaves_that_pass_through_is_found(jax, jnp, x, with_vjp):
    wrong = with_vjp(jnp.sin, lambda x, w: (2 * w * jnp.cos(x),))

    entries = wrong_entries(
        lambda key, none, d: (key, wrong(d["x"]) * d["n"]),
        (jax.random.key(3), None, {"n": jnp.arange(1, 4), "x": x}),
    )

    # what is plainly wrong is proved by one of its entries
    assert entries
    assert entries <= {(f"out[1][{k}]", f"inputs[2]['x'][{k}]") for k in range(3)}


def test_a_custom_rule_with_float0_gradients_of_integers_passes(jax, jnp, x, with_vjp):
    def backward(x, n, w):
        return w * n, np.zeros(n.shape, jax.dtypes.float0)

    n = jnp.arange(1, 4)

    assert gradcheck(with_vjp(lambda x, n: x * n, backward), (x, n), seed=0)
    assert not examine(with_vjp(lambda x, n: x * n, lambda x, n, w: (w, None)), (x, n), seed=0)


def test_integers_alone_are_refused(jnp):
    with pytest.raises(InputError, match=r"no input has a floating .*inputs\[0\]: int32"):
        gradcheck(lambda n: n * 2.0, (jnp.arange(3),))


def test_wrt_that_names_an_integer_is_refused(jnp, x):
    with pytest.raises(InputError, match="which is int32"):
        gradcheck(lambda x, n: x * n, (x, jnp.arange(3)), wrt=1)


def test_keyword_arguments_are_checked_and_named(product, x, w):
    def f(wrong):
        return lambda x, *, weight, scale=1: scale * product(wrong=wrong)(weight, x)

    kwargs = {"weight": w, "scale": 2}

    assert gradcheck(f(False), (x,), kwargs=kwargs, seed=0)
    assert wrong_entries(f(True), (x,), kwargs=kwargs) == {("out[1]", "kwargs['weight'][1, 2]")}


def test_wrt_chooses_leaves_of_registered_nodes(layer, product, x, w):
    def f(m):
        return product(wrong=True)(m.weight, x) + m.bias

    inputs = (layer(w, x[:2]),)

    assert gradcheck(f, inputs, wrt="inputs[0].bias", seed=0)
    assert wrong_entries(f, inputs, wrt="inputs[0].weight")
