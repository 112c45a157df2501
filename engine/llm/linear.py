"""A fixed linear map, stored the way its device multiplies fastest."""

import torch


class Linear:
    """x [N, in] -> [N, out] in `dtype`; weight [out, in] and bias [out] as in a state dict.

    On a CPU in float32, where the weight was stored as float16, the float16 numbers are kept and widened inside the
    matrix product (FBGEMM), which reads half the memory: a decode step is bound by that. Exact, since float16 widens
    exactly and sums are float32; and a row's result does not depend on the batch.
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
            return
        # [in, out] contiguous: MKL's product with one row takes two thirds of the time of [out, in].
        self._weight = weight.to(device, dtype).t().contiguous()
        self._bias = None if bias is None else bias.to(device, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is not None:
            product: torch.Tensor = _multiply_packed(x, self._packed)
            return product
        if self._bias is None:
            return x @ self._weight
        return torch.addmm(self._bias, x, self._weight)


# The bound kernel under the OpOverload, whose own __call__ costs 3 us of Python looking for subclasses of Tensor.
_multiply_packed = torch.ops.quantized.linear_dynamic_fp16.default._op


def can_pack_half() -> bool:
    """Whether this build of torch has FBGEMM's half-precision product (x86 builds have)."""
    return torch.backends.quantized.engine in ("x86", "fbgemm")
