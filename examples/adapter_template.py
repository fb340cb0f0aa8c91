"""An adapter to copy, for an engine whose functions are not those of the Array API.

`myengine` stands for the engine; what it has in place of these calls is written in their place.
Then ask the conformance kit: adjudge conform adapter_template:MyBackend --excuse jvp=none ...
"""

from types import SimpleNamespace

import myengine
import numpy as np

from adjudge.engine import ArraysByNumpy, AutodiffBackend

NAMESPACE = SimpleNamespace(  # as the Array API calls them: the kit lists what lacks
    **vars(myengine)
    | {
        "sum": lambda x, axis=None, keepdims=False: myengine.sum(x, axis, keepdims),
        "permute_dims": lambda x, axes: myengine.transpose(x, axes),
        "concat": lambda arrays, axis=0: myengine.join(arrays, axis),
        "take": lambda x, indices, axis=0: myengine.pick(x, indices, axis),
    }
)


class MyArrays(ArraysByNumpy):
    """How tensors become NumPy arrays, and NumPy arrays tensors."""

    floating = ("float64", "float32")  # what is differentiated
    others = ("int64", "bool")

    def numpy(self, array):
        return myengine.to_numpy(array)

    def tensor(self, values, dtype, device, like=None):
        return myengine.tensor(np.array(values, dtype=dtype), dtype=getattr(myengine, dtype))


class MyBackend(AutodiffBackend):
    """How the engine takes gradients."""

    name = "myengine"
    xp = NAMESPACE
    arrays = MyArrays("myengine", NAMESPACE)

    def owns(self, leaf):
        return isinstance(leaf, myengine.Tensor)

    def vjp(self, f, x):
        x = tuple(myengine.recorded(leaf) for leaf in x)  # a copy whose uses are recorded
        y = f(x)

        def pullback(w):  # called any number of times; None in w: this output takes no part
            return myengine.gradients(y, x, self.arrays.zeros_for_absent(w, y))

        return y, pullback

    def vjp_map(self, f, x_count):
        raise self.lacks("second order")  # leave this out if vjp may be called within vjp
