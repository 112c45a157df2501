"""Triton kernels on a CPU. Call `uses_interpreter` before anything imports Triton; it holds for the whole process."""

import inspect
import os
from importlib.util import find_spec
from typing import Any


def uses_interpreter() -> bool:
    """Whether Triton is there at all."""
    if find_spec("triton") is None:
        return False
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    if not getattr(interpreter, "is_amended", False):
        _loop_over_numpy_2(interpreter)
        _remember_builtins(interpreter)
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
