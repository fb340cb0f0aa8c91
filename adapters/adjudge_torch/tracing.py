"""What a function did at a point, as a straight-line program of the calls that users write.

A call of `torch.sin`, `F.layer_norm` or a custom operator is one step, and what it calls in turn is
part of it. So is a call of an `autograd.Function`, which no mode of PyTorch reports. A step that
writes into a tensor gives its new value as a result, and views of that tensor get theirs by a step
of their own.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import optree
import torch
import torch.utils.checkpoint
import torch.utils.hooks
from torch._subclasses import FakeTensor
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from adjudge.engine import (
    INPUT,
    UNKNOWN,
    Arrays,
    Environment,
    Evaluation,
    FlatFunction,
    Hook,
    Operand,
    Place,
    Ref,
    Setting,
    Step,
    Trace,
    defined_at,
    innermost,
    place_of,
)
from adjudge.errors import Catching, Source, mark, running
from adjudge_torch.environment import default_device
from adjudge_torch.precision import DESCRIBES, memory_of

ENGINE = str(Path(torch.__file__).parent)

CALLS_MODULES = inspect.getfile(torch.nn.Module)
"""The file of the function that calls a module, and holds it as `self` meanwhile."""

Names: TypeAlias = dict[torch.nn.Module, dict[int, str]]
"""For each module, the paths of the modules in it by their `id`."""

HERE = str(Path(__file__).parent)

APPLIED: Any = torch.autograd.Function.__base__
"""The class in which `Function.apply` looks up the call into C++, also where somebody has kept a
reference to `apply`."""

HOOK = "a backward hook"
"""The name of the step by which PyTorch calls the backward hooks of a module."""

LEAVES_ARRAYS = (
    *("item", "tolist", "numpy", "__array__", "__dlpack__"),
    *("__bool__", "__int__", "__index__", "__float__", "__complex__"),
)
"""The methods that hand a value to Python; what is computed from it there is not recorded."""


def trace(f: FlatFunction, x: Arrays, environment: Environment) -> Trace:
    """Contract: see `AutodiffBackend.trace`. The leaves of `x` are marked for differentiation."""
    recorder = _Recorder(x, environment)
    with applications_through(recorder.application), recorder:
        y = f(x)
    outputs = tuple(map(recorder.operand, y))
    recorder.ask_nodes_for_hooks()
    cotangents = partial(_handed_back, y, recorder.edges, [_edge(leaf) for leaf in x])
    return Trace(recorder.steps, recorder.recorded, outputs, cotangents, recorder.hooks)


def _edge(tensor: torch.Tensor) -> Any:
    """Returns where the gradient of a tensor comes by, as it is now; `None` where none does."""
    return torch.autograd.graph.get_gradient_edge(tensor) if tensor.requires_grad else None


def _handed_back(
    y: Arrays, edges: Sequence[Sequence[Any]], of_inputs: Sequence[Any], w: Arrays
) -> tuple[list[Arrays], Arrays]:
    """Contract: see `Trace.cotangents`."""
    pairs = [(one, cotangent) for one, cotangent in zip(y, w, strict=True) if one.requires_grad]
    kept = [edge for some in (*edges, of_inputs) for edge in some if edge is not None]
    found: Iterator[Any] = iter(())
    if pairs and kept:
        outputs, cotangents = zip(*pairs, strict=True)
        found = iter(
            torch.autograd.grad(outputs, kept, cotangents, retain_graph=True, allow_unused=True)
        )
    *of_steps, of_leaves = [
        tuple([None if edge is None else next(found, None) for edge in some])
        for some in (*edges, of_inputs)
    ]
    return of_steps, of_leaves


class _Write(NamedTuple):
    """A tensor that was written into, as it was afterwards."""

    ref: Ref
    tensor: torch.Tensor
    version: int


class _Recorder(TorchFunctionMode):
    """The mode of PyTorch that sees the calls of a function, and keeps them as steps."""

    def __init__(self, x: Arrays, environment: Environment) -> None:
        """The tensors `x` are the inputs of the program."""
        super().__init__()
        self.steps: list[Step] = []
        self.recorded = Evaluation(tuple(map(copied, x)), self.steps)
        self.edges: list[tuple[Any, ...]] = []
        """For each step, where the gradients of its results come by."""
        self.hooks: list[Hook] = []
        self._environment = environment
        self._names: Names = {}
        self._known = WeakTensorKeyDictionary()
        """For each tensor that depends on the inputs, what stands for it, and the version of its
        memory at that time. What the function lets go of leaves the memory."""
        self._constants: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        self._writes: dict[int, list[_Write]] = {}
        """What was written into memory, by its address."""
        self._lock = threading.Lock()
        self._inside: set[int] = set()
        """The threads in which a step runs. What is called there is part of it."""
        for k, leaf in enumerate(x):
            self._know(leaf, Ref(INPUT, k))

    # ---------------------------------------------------------------- what is seen

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Records a call of PyTorch. Inside of it this mode is off."""
        if func in DESCRIBES:
            return func(*args)
        inside = threading.get_ident() in self._inside or torch.compiler.is_compiling()
        name = None if inside else name_of(func)
        if func is torch.autograd.grad and not inside:
            place = place_of(stack(sys._getframe()), ENGINE)
            self._add(
                Step("torch.autograd.grad", _nothing, (), 0, place=place, differentiates=True), ()
            )
        if func is torch.Tensor.register_hook and not inside:
            self._hooked(args[0], [*args, *(kwargs or {}).values()][1:])
        if name is None:
            return func(*args, **(kwargs or {}))
        return self.call(func, func, tuple(args), dict(kwargs or {}), about_call(func, name))

    def application(self, function: Callable[..., Any], cls: Any, args: tuple[Any, ...]) -> Any:
        """Records a call of an `autograd.Function`. A reentrant checkpoint is walked into."""
        if cls is torch.utils.checkpoint.CheckpointFunction:
            called, _, *operands = args
            return called(*operands)
        if cls is BackwardHookFunction:
            hooks = _hooks_of_module(sys._getframe())
            for one in args:
                self._hooked(one, hooks)
        about = {"name": HOOK} if cls is BackwardHookFunction else rule_of(cls)
        return self.call(function, cls.apply, args, {}, about)

    def call(
        self,
        function: Callable[..., Any],
        again: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        about: dict[str, Any],
    ) -> Any:
        """Returns what the function returns, and keeps a step where a tensor goes in that depends
        on the inputs or is marked for differentiation.

        `again` is the same function, as it is called in a replay.
        """
        thread = threading.get_ident()
        if thread in self._inside or transformed():
            return function(*args, **kwargs)
        seen = CallSeen(again, args, kwargs)
        if not any(one in self._known or one.requires_grad for one in seen.tensors):
            return function(*args, **kwargs)
        if any(isinstance(one, FakeTensor) for one in seen.tensors):  # the compiler looks at shapes
            return function(*args, **kwargs)
        self._inside.add(thread)
        try:
            return self._step(partial(function, *args, **kwargs), seen, about)
        finally:
            self._inside.discard(thread)

    def _step(self, run: Callable[[], Any], seen: CallSeen, about: dict[str, Any]) -> Any:
        operands = tuple(map(self.operand, seen.tensors))
        seen.begun(operands, self._environment)
        returned = run()
        step = seen.ended(returned, about, self._names)
        if step is None:
            return returned
        refs = self._add(step, seen.kept)
        self._noted(refs[:1], _hooks_of_saved())
        results = len(seen.kept) - len(seen.written)
        for k, (one, ref) in enumerate(zip(seen.kept, refs, strict=True)):
            self._know(one, ref)
            if k >= results:
                write = _Write(ref, one.detach(), version_of(one))
                self._writes.setdefault(memory_of(one) or id(one), []).append(write)
        return returned

    def _hooked(self, tensor: object, hooks: Sequence[Any]) -> None:
        """Notes that hooks get the gradient of a tensor. A parameter is no value of the program."""
        if isinstance(tensor, torch.Tensor) and (tensor in self._known or tensor.grad_fn):
            value = self.operand(tensor)
            self._noted([value], hooks)

    def _noted(self, values: Sequence[Operand], hooks: Iterable[Any]) -> None:
        """Notes that hooks get the gradients of these values, or of what these are made from."""
        self.hooks += [
            Hook(value, _name_of_hook(one), defined_at(one))
            for one in hooks
            for value in values
            if isinstance(value, Ref)
        ]

    def ask_nodes_for_hooks(self) -> None:
        """Notes the hooks that are set on nodes of the graph (`grad_fn.register_hook`, backward
        hooks of modules of the old kind), which no function mode sees.
        """
        for k, edges in enumerate(self.edges):
            nodes = {edge.node: j for j, edge in enumerate(edges) if edge is not None}
            for node, j in nodes.items():
                self._noted([Ref(k, j)], _hooks_of_node(node))

    # ---------------------------------------------------------------- values

    def operand(self, tensor: torch.Tensor) -> Operand:
        """Returns what stands for a tensor in the program: a value where it does not depend on the
        inputs.
        """
        if tensor not in self._known:
            if tensor.grad_fn is not None:
                self._unseen(tensor)
            elif tensor.requires_grad:
                return tensor.detach()
            else:
                return self._constant(tensor)
        ref, version = self._known[tensor]
        if version_of(tensor) != version:
            for write in self._writes.get(memory_of(tensor) or id(tensor), ()):
                if write.version > version:
                    ref = self._overlaid(tensor, ref, write)
            self._know(tensor, ref)
        return ref

    def _constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a copy of a tensor, which may be written into later; one for all its uses."""
        kept = self._constants.get(id(tensor))
        if kept is None or kept[1] != version_of(tensor):
            kept = self._constants[id(tensor)] = tensor, version_of(tensor), copied(tensor)
        return kept[2]

    def _know(self, tensor: torch.Tensor, ref: Ref) -> None:
        self._known[tensor] = ref, version_of(tensor)

    def _unseen(self, tensor: torch.Tensor) -> None:
        """Adds a tensor that was computed where this mode sees nothing."""
        reason = (
            "was computed before, or by what cannot be recorded: torch.autograd.grad, a transform "
            "of torch.func, a function that is scripted or compiled"
        )
        name = str(tensor.grad_fn.name()) if tensor.grad_fn is not None else ""
        place = place_of(stack(sys._getframe()), ENGINE)  # where it is used
        step = Step(name, _nothing, (), 1, place=place, opaque=reason)
        self._know(tensor, self._add(step, [tensor])[0])

    def _overlaid(self, tensor: torch.Tensor, before: Ref, write: _Write) -> Ref:
        """Adds the step by which a view has its value after its memory was written into through
        another tensor.
        """
        old, new = _geometry(tensor), _geometry(write.tensor)
        size, count = (
            tensor.untyped_storage().nbytes() // tensor.element_size(),
            write.tensor.numel(),
        )
        entry = torch.full((size,), -1, device=tensor.device).as_strided_scatter(
            torch.arange(count, device=tensor.device).view(new[0]), *new
        )
        entry = entry.as_strided(*old)  # which entry of what was written each entry of the view is

        def run(operands: Arrays) -> Arrays:
            written = operands[1].reshape(-1)[entry.clamp(min=0)]
            return (torch.where(entry >= 0, written, operands[0]),)

        static = {"view": old, "written": new}
        step = Step("written through a view", run, (before, write.ref), 1, static)
        return self._add(step, [tensor])[0]

    def _add(self, step: Step, results: Sequence[torch.Tensor]) -> list[Ref]:
        """Adds a step, and returns what stands for its results."""
        with self._lock:
            here = len(self.steps)
            self.edges.append(tuple(map(_edge, results)))
            self.steps.append(step)
            self.recorded.add(here, tuple(map(copied, results)))
        return [Ref(here, k) for k in range(len(results))]


class CallSeen:
    """A call that is seen while it is made."""

    def __init__(
        self, again: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """`again` is what is called with the arguments, as it is called in a replay."""
        call_tree: Any = (args, kwargs)
        self.again = again
        with running(Source.FUNCTION):  # nodes of a tree may be of the user's classes
            self.leaves, self.spec = optree.tree_flatten(call_tree, none_is_leaf=True)
        self.places = [k for k, one in enumerate(self.leaves) if isinstance(one, torch.Tensor)]
        self.tensors = [self.leaves[k] for k in self.places]
        self.kept: list[torch.Tensor] = []
        """The results, and after them the tensors that were written into."""
        self.written: list[int] = []
        """Into which of its tensors the call wrote."""

    def begun(self, operands: tuple[Operand, ...], environment: Environment) -> None:
        """Looks at what the call may change, before it is made. `operands` stand for the tensors
        as they are then.
        """
        self.operands = operands
        self.marked = _marked(operands, self.tensors)
        self.versions = [version_of(one) for one in self.tensors]
        found = map(environment.generator, self.leaves)
        generators = [setting for setting in found if setting is not None]
        self.random = _RandomStates(environment, generators)

    def ended(self, returned: Any, about: dict[str, Any], names: Names) -> Step | None:
        """Returns the step that the call is, after it was made; `None` where it had nothing to do
        with the values of tensors.
        """
        random = self.random
        drew = random != _RandomStates(random.environment, random.generators)
        pairs = zip(self.tensors, self.versions, strict=True)
        self.written = [k for k, (one, before) in enumerate(pairs) if version_of(one) != before]
        results = _tensors_in(returned)
        leaves_arrays = about["name"].rpartition(".")[2] in LEAVES_ARRAYS
        if not results and not self.written and not leaves_arrays:
            return None  # a shape, a dtype
        self.kept = [*results, *(self.tensors[k] for k in self.written)]
        if about.get("custom") and "rule_place" not in about:
            about = about | {"rule_place": _formula_of(results)}
        module = _module_running(sys._getframe(), names)
        if about["name"] == HOOK and module:
            about = about | {"name": f"{HOOK} of module {module}"}
        call = _Call(self.again, self.leaves, self.spec, self.places, self.written)
        # no name holds a frame: it would hold itself, and with it all that the engine saved
        return Step(
            run=_replaying(call, random) if drew else call,
            operands=self.operands,
            results=len(self.kept),
            static=_static(self.spec, self.leaves),
            place=place_of(stack(sys._getframe()), ENGINE),
            module=module,
            marked=self.marked,
            under=_unrecorded(),
            **about,
        )


class _Call:
    """A call that was seen, as a function of the tensors that went into it."""

    def __init__(
        self,
        function: Callable[..., Any],
        leaves: Sequence[Any],
        spec: Any,
        places: Sequence[int],
        written: Sequence[int],
    ) -> None:
        """The tensors stand at `places` among the leaves, and the call wrote into those that
        `written` numbers. It is run again with gradients and autocast as they are now.
        """
        self.function, self.spec, self.places, self.written = function, spec, places, written
        self.recorded = torch.is_grad_enabled()
        devices = {one.device.type for one in leaves if isinstance(one, torch.Tensor)}
        self.autocast = [
            (device, torch.get_autocast_dtype(device))
            for device in devices
            # PyTorch refuses to say of a device that has no autocast, as `meta`, whether it is on
            if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        ]
        self.device = default_device()
        self.rest = [None if isinstance(one, torch.Tensor) else one for one in leaves]

    def __call__(self, operands: Arrays) -> Arrays:
        leaves = list(self.rest)
        for k, (place, operand) in enumerate(zip(self.places, operands, strict=True)):
            leaves[place] = operand.clone() if k in self.written else operand
        args, kwargs = self.spec.unflatten(leaves)
        with ExitStack() as settings:
            for device, dtype in self.autocast:
                settings.enter_context(torch.autocast(device, dtype, cache_enabled=False))
            if self.device is not None:  # it belongs to the thread
                settings.enter_context(self.device)
            if not self.recorded:
                settings.enter_context(torch.no_grad())
            returned = self.function(*args, **kwargs)
        written = [leaves[self.places[k]] for k in self.written]
        return (*_tensors_in(returned), *written)


def _unrecorded() -> str:
    """Returns under which setting PyTorch records no derivatives now; nothing where it does."""
    if torch.is_inference_mode_enabled():
        return "torch.inference_mode"
    return "" if torch.is_grad_enabled() else "torch.no_grad"


class _RandomStates:
    """The global random state, and those of generators that a call is passed, as they are now."""

    def __init__(self, environment: Environment, generators: Sequence[Setting]) -> None:
        """The states are read."""
        self.environment, self.generators = environment, generators
        self.common = environment.random_state()
        self.own = [one.read() for one in generators]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _RandomStates):
            return NotImplemented
        return self.common == other.common and self.own == other.own

    __hash__ = None  # type: ignore[assignment] # it is compared, and no key

    def put_back(self) -> None:
        """Goes back to these states."""
        self.environment.set_random_state(self.common)
        for one, state in zip(self.generators, self.own, strict=True):
            one.write(state)


def _replaying(call: FlatFunction, states: _RandomStates) -> FlatFunction:
    """Returns a call that draws what it drew in these random states, and puts the states back that
    it finds.
    """

    def run(operands: Arrays) -> Arrays:
        now = _RandomStates(states.environment, states.generators)
        states.put_back()
        try:
            return call(operands)
        finally:
            now.put_back()

    return run


def _nothing(operands: Arrays) -> Arrays:
    return operands


def _tensors_in(returned: Any) -> list[torch.Tensor]:
    with running(Source.FUNCTION):  # nodes of a tree may be of the user's classes
        leaves: list[Any] = optree.tree_leaves(returned)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy without history, of which a derivative can be taken."""
    with (
        running(Source.ENGINE),  # which a subclass of tensors may have refuse it
        torch.inference_mode(False) if tensor.is_inference() else nullcontext(),
    ):
        return tensor.detach().clone()


def _marked(operands: Sequence[Operand], tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    pairs = enumerate(zip(operands, tensors, strict=True))
    return tuple(k for k, (one, t) in pairs if not isinstance(one, Ref) and t.requires_grad)


def _static(spec: Any, leaves: Sequence[Any]) -> dict[str, Hashable]:
    """Returns the arguments of a call that are no tensors, by their places and keywords."""
    paths = (".".join(map(str, path[1:])) for path in spec.paths())
    pairs = zip(paths, leaves, strict=True)
    return {path: _comparable(leaf) for path, leaf in pairs if not isinstance(leaf, torch.Tensor)}


def _comparable(leaf: object) -> Hashable:
    if leaf is None or isinstance(leaf, bool | int | float | complex | str | torch.dtype):
        return leaf
    with Catching(), running(Source.FUNCTION):  # the text of an argument is the user's code
        return str(leaf)
    return f"{type(leaf).__qualname__} {id(leaf)}"


def version_of(tensor: torch.Tensor) -> int:
    """Returns how often a tensor was written into; one of inference mode does not count."""
    try:
        return 0 if tensor.is_inference() else tensor._version
    except Exception as error:  # which a subclass of tensors may have refuse it
        mark(error, Source.ENGINE)
        raise


def _geometry(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


def transformed() -> bool:
    """Returns whether a transform of `torch.func` or the compiler is running, whose tensors stand
    for others.
    """
    if torch._C._are_functorch_transforms_active():  # as Function.apply asks
        return True
    return torch._guards.TracingContext.try_get() is not None


def about_call(func: Any, name: str) -> dict[str, Any]:
    """Returns what a step says of a function that PyTorch calls by this name."""
    overload = getattr(func, func.overloads()[0]) if hasattr(func, "overloads") else func
    if getattr(overload, "namespace", "aten") == "aten":
        return {"name": name}
    return {"name": name, "custom": True, "rule": f"the backward pass of {name}"}


@cache
def name_of(function: Any) -> str | None:
    """Returns the name of what PyTorch calls: `torch.Tensor.add`; `None` where it has none."""
    if getattr(function, "namespace", None) is not None:
        return str(function)
    name: str | None = resolve_name(function)
    if name is None and inspect.isbuiltin(function):  # `torch._foreach_mul` is not listed
        name = f"torch.{function.__name__}"
    return name and name.removesuffix(".__get__")


def _module_running(frame: Any, names: Names) -> str:
    """Returns the path of the innermost module that is running within the outermost one, or the
    name of its class; nothing where no module is. What is found is added to `names`.
    """
    modules: list[torch.nn.Module] = []
    while frame is not None:
        if frame.f_code.co_filename == CALLS_MODULES:
            held = frame.f_locals.get("self")
            modules += [held] if isinstance(held, torch.nn.Module) else []
        frame = frame.f_back
    if not modules:
        return ""
    inner, outer = modules[0], modules[-1]
    if outer not in names:
        names[outer] = {id(one): name for name, one in outer.named_modules()}
    return names[outer].get(id(inner)) or type(inner).__name__


def _name_of_hook(hook: Any) -> str:
    name = str(getattr(innermost(hook), "__name__", "__call__"))
    return type(hook).__name__ if name == "__call__" else name


def _hooks_of_module(frame: Any) -> list[Any]:
    """Returns the backward hooks of the module that sets them up now on its inputs or outputs."""
    while frame is not None:
        held = frame.f_locals.get("self")
        if isinstance(held, torch.utils.hooks.BackwardHook):
            inputs = frame.f_code.co_name == "setup_input_hook"
            if inputs or frame.f_code.co_name == "setup_output_hook":
                return list(held.user_hooks if inputs else held.user_pre_hooks)
        frame = frame.f_back
    return []


def _hooks_of_saved() -> list[Any]:
    """Returns the hooks on saved tensors that are set here, but those of PyTorch itself, which keep
    them on a CPU or compute them again.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # private
    hooks = (top and top(False)) or ()
    return [one for one in hooks if not getattr(one, "__module__", "").startswith("torch.")]


def _hooks_of_node(node: Any) -> list[Any]:
    """Returns the hooks of a node but those by which PyTorch itself sets up hooks of modules.

    A node does not tell them. The handle of a hook that is set and taken away knows the others.
    """
    found = []
    for register in (node.register_hook, node.register_prehook):
        handle = register(_nothing)
        known = handle.hooks_dict_ref() or {}
        found += [one for one in known.values() if one is not _nothing]
        handle.remove()
    return [one for one in found if getattr(one, "__module__", "") != torch.utils.hooks.__name__]


def stack(frame: Any) -> Iterator[tuple[str, int]]:
    """Yields the files and lines around a frame, the innermost first, without this adapter's."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(HERE):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


# ---------------------------------------------------------------- what no mode sees


@contextmanager
def applications_through(handle: Callable[..., Any]) -> Iterator[None]:
    """Returns a context in which a call of an `autograd.Function` goes through `handle`, with what
    makes the call, its class and the arguments.
    """

    def apply(cls: Any, *args: Any) -> Any:
        return handle(super(APPLIED, cls).apply, cls, args)

    if "torch._dynamo" in sys.modules:  # else the compiler would look into `handle`
        handle = torch.compiler.disable(handle)
    before = vars(APPLIED).get("apply")
    APPLIED.apply = classmethod(apply)
    try:
        yield
    finally:
        if before is None:
            del APPLIED.apply
        else:
            APPLIED.apply = before


def rule_of(cls: Any) -> dict[str, Any]:
    """Returns what a step says of a custom function: its name, and where its derivative is defined.

    PyTorch makes classes of others: under vmap one of the user's, and of a custom operator one that
    holds its backward pass.
    """
    if cls.__module__.startswith("torch."):
        backward = inspect.getclosurevars(cls.backward).nonlocals.get("orig_backward", cls.backward)
        held = inspect.getclosurevars(backward).nonlocals  # of an operator that takes lists as well
        if "op" in held and "info" in held:
            place = defined_at(getattr(held["info"], "_backward_fn", None))
            return {**about_call(held["op"], str(held["op"])), "rule_place": place}
        cls = held.get("autograd_function", cls)
    name = "backward" if cls.backward is not torch.autograd.Function.backward else "vjp"
    backward = getattr(cls, name)
    about = {
        "name": f"{cls.__name__}.apply",
        "custom": not cls.__module__.startswith("torch."),
        # a `functools.partial` or an object has no name of its own
        "rule": f"{cls.__name__}.{getattr(backward, '__name__', name)}",
        "rule_place": defined_at(backward),
    }
    if cls.jvp is not torch.autograd.Function.jvp:
        about |= {"forward_rule": f"{cls.__name__}.jvp", "forward_place": defined_at(cls.jvp)}
    return about


def _formula_of(results: Sequence[torch.Tensor]) -> Place:
    """Returns where the backward pass of a custom operator is defined, which gave these results."""
    classes = (getattr(type(one.grad_fn), "_forward_cls", None) for one in results)
    rules = (rule_of(cls) for cls in classes if cls is not None)
    return next((rule["rule_place"] for rule in rules if rule["custom"]), UNKNOWN)
