"""Triton kernels on a CPU. Call `uses_interpreter` before anything imports Triton; it holds for the whole process."""

import os
from importlib.util import find_spec
from typing import Any


def uses_interpreter() -> bool:
    """Whether Triton is there at all."""
    if find_spec("triton") is None:
        return False
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    if getattr(interpreter, "loops_over_numpy_2", False):
        return True
    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        # Triton 3.6 converts an array of one element with int(), which numpy 2.4 refuses: loops up to a loaded number.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_with_index
    interpreter.loops_over_numpy_2 = True
    return True
