"""A fixed linear map, stored the way its device multiplies fastest."""

from bisect import bisect_left
from functools import cache
from typing import Final

import torch
from torch.nn.functional import pad


class Linear:
    """x [N, in] -> [N, out] in `dtype`; weight [out, in] and bias [out] as in a state dict.

    On a CPU in float32, where the weight was stored as float16, the float16 numbers are kept and widened inside the
    matrix product (FBGEMM), which reads half the memory: a decode step is bound by that. Exact, since float16 widens
    exactly and sums are float32; and a row's result does not depend on the batch (`_paddings`).
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        device: torch.device,
        dtype: torch.dtype,
        packs_half: bool = True,
    ) -> None:
        self._packed: torch.ScriptObject | None = None
        is_half = weight.dtype == torch.float16 and dtype == torch.float32 and device.type == "cpu"
        if packs_half and is_half and can_pack_half():
            float_bias = None if bias is None else bias.float()
            self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), float_bias)
            self._paddings = _paddings()
            return
        # [in, out] contiguous: MKL's product with one row takes two thirds of the time of [out, in].
        self._weight = weight.to(device, dtype).t().contiguous()
        self._bias = None if bias is None else bias.to(device, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is not None:
            num_rows = len(x)
            num_padded = self._paddings[num_rows % _BLOCK_ROWS]
            product: torch.Tensor = _multiply_packed(pad(x, (0, 0, 0, num_padded)) if num_padded else x, self._packed)
            return product[:num_rows] if num_padded else product
        if self._bias is None:
            return x @ self._weight
        return torch.addmm(self._bias, x, self._weight)


# The bound kernel under the OpOverload, whose own __call__ costs 3 us of Python looking for subclasses of Tensor.
_multiply_packed = torch.ops.quantized.linear_dynamic_fp16.default._op


def can_pack_half() -> bool:
    """Whether this build of torch has FBGEMM's half-precision product (x86 builds have)."""
    return torch.backends.quantized.engine in ("x86", "fbgemm")


_BLOCK_ROWS: Final = 120  # FBGEMM takes so many at a time
_KERNEL_ROWS: Final = 4  # one of its kernels, whatever the processor; the largest has 14 rows


@cache
def _paddings() -> tuple[int, ...]:
    """How many more rows FBGEMM must be given of 0 to 119 to sum all of them up in the same order.

    With AVX2 its kernels of one and two rows sum up in two halves, larger ones do not, and 7 rows are 6 and 1: a row
    would depend on the others. With AVX-512 all are alike. Raises RuntimeError where nothing helps.
    """
    generator = torch.Generator().manual_seed(0)
    packed = torch.ops.quantized.linear_prepack_fp16(torch.randn(64, 64, generator=generator), None)
    x = torch.randn(_BLOCK_ROWS + _KERNEL_ROWS, 64, generator=generator)
    kernels = [x[start : start + _KERNEL_ROWS] for start in range(0, len(x), _KERNEL_ROWS)]
    expected = torch.cat([_multiply_packed(rows, packed) for rows in kernels])
    alike = [n for n in range(len(x)) if torch.equal(_multiply_packed(x[:n], packed), expected[:n])]
    if alike[-1] < _BLOCK_ROWS - 1:
        raise RuntimeError("this processor's product of half-precision weights has an order for each number of rows")
    return tuple(alike[bisect_left(alike, num_rows)] - num_rows for num_rows in range(_BLOCK_ROWS))
