"""Triton kernels on a CPU. Call `uses_interpreter` before anything imports Triton; it holds for the whole process.

The interpreter makes types anew for each operation on a few numbers. Types that are kept give the same results in a
third of the time: all changes here but the first are for speed.
"""

import inspect
import os
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np


def uses_interpreter() -> bool:
    """Whether Triton is there at all."""
    if find_spec("triton") is None:
        return False
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    if not getattr(interpreter, "is_amended", False):
        _loop_over_numpy_2(interpreter)
        _remember_builtins(interpreter)
        _patch_once(interpreter)
        _keep_types(interpreter)
        _leave_overflow_alone(interpreter)
        interpreter.is_amended = True
    return True


def _loop_over_numpy_2(interpreter: Any) -> None:
    """Triton 3.6 converts an array of one element with int(), which numpy 2.4 refuses: loops up to a loaded number."""
    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_with_index


def _remember_builtins(interpreter: Any) -> None:
    """Before any kernel has run: later some members are replaced already.

    Each call of one function by another goes through all members of five places to find what is to be replaced, a fifth
    of the time: here through those that ever are.
    """
    tl = interpreter.tl
    places = (tl, tl.math, tl.core, tl.tensor, tl.core.tensor_descriptor_base)
    names = {
        place: [name for name, member in inspect.getmembers(place) if tl.core.is_builtin(member)] for place in places
    }

    def patch_builtin(place: Any, builder: Any, scope: Any) -> None:
        for name in names[place]:
            member = getattr(place, name)
            if tl.core.is_builtin(member):
                interpreter._patch_attr(place, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtin


def _patch_once(interpreter: Any) -> None:
    """A kernel's call of another function finds `tl` patched, and is to patch it again only where it sees another."""
    patch, tl = interpreter._patch_lang, interpreter.tl
    patched: list[frozenset[str]] = []

    @cache
    def seen_by(fn: Any) -> frozenset[str]:
        return frozenset(each.__name__ for each in fn.__globals__.values() if each is tl or each is tl.core)

    class Outermost(interpreter._LangPatchScope):  # type: ignore[misc]
        def restore(self) -> None:
            super().restore()
            patched.clear()

    def patch_lang(fn: Any) -> Any:
        seen = seen_by(fn)
        if seen in patched:
            return None  # of a call inside a kernel, which restores nothing
        patched.append(seen)
        return patch(fn)

    interpreter._LangPatchScope = Outermost
    interpreter._patch_lang = patch_lang


def _keep_types(interpreter: Any) -> None:
    tl, numpy_dtype_of = interpreter.tl, interpreter._get_np_dtype
    block_init = tl.core.block_type.__init__
    dtypes: dict[str, Any] = {}
    blocks: dict[tuple[int, ...], tuple[Any, int, str]] = {}

    @cache
    def shape_of(numbers: tuple[int, ...]) -> tuple[Any, Any]:
        size = tl.constexpr(int(np.prod(numbers, dtype=np.int64)))
        return tl.core.tuple([tl.constexpr(number) for number in numbers]), size

    def get_np_dtype(dtype: Any) -> Any:
        scalar = dtype.scalar
        if isinstance(scalar, tl.pointer_type):
            return numpy_dtype_of(scalar)
        if scalar.name not in dtypes:
            dtypes[scalar.name] = numpy_dtype_of(scalar)
        return dtypes[scalar.name]

    def init_block(self: Any, element_ty: Any, shape: Any) -> None:
        numbers = tuple(number.value if isinstance(number, tl.constexpr) else number for number in shape)
        if numbers not in blocks:
            block_init(self, element_ty, shape)  # which refuses what is no shape
            blocks[numbers] = self.shape, self.numel, f"<{self.shape}, "
        self.element_ty = element_ty
        self.shape, self.numel, begun = blocks[numbers]
        self.name = f"{begun}{element_ty}>"

    def init_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shape_of(tuple(type.shape.values) if type.is_block() else ())

    interpreter._get_np_dtype = get_np_dtype
    tl.core.block_type.__init__ = init_block
    tl.core.tensor.__init__ = init_tensor


def _leave_overflow_alone(interpreter: Any) -> None:
    """It computes each sum and product of integers once more in 64 bits, and forgets what it finds unless it debugs."""
    builder = interpreter.interpreter_builder
    if not builder.options.debug:
        builder.options = replace(builder.options, sanitize_overflow=False)
