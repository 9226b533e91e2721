"""When a result of a sample of OpInfo is right: near the CPU's, or no farther than it from the exact one.

The exact one is computed in f64. In 16 bits each element is judged alone, so that a large one hides nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.testing import assert_close
from torch.testing._comparison import get_tolerances
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo
from torch.utils import _pytree

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
# In 16 bits an element of these is off by an ulp of the largest one, and not of its own, and why.
BY_THE_LARGEST = {
    "nn.functional.linear_cross_entropy.chunked_none": "a loss is a difference of logits that were rounded "
    "to 16 bits, by the CPU as well: where it is small, it has their error",
}


def tolerances_of(info: OpInfo, dtype: torch.dtype) -> dict[str, float]:
    """The OpInfo's own for all devices, else assert_close's."""
    for given in info.decorators:
        if (
            isinstance(given, DecorateInfo)
            and given.cls_name in (None, "TestCommon")
            and given.device_type is None
        ):
            for decorator in given.decorators:
                if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                    tolerance = decorator.d[dtype]
                    return {"atol": tolerance.atol, "rtol": tolerance.rtol}
    return {}


def real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def no_farther(actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> bool:
    """Within twice the CPU's own error, and an ulp of the largest value."""
    exact, a, e = (real(each).double() for each in (exact, actual, expected))
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        if not torch.equal(kind(a), kind(e)):
            return False
    finite = a.isfinite()
    if not finite.any():
        return True
    scale = float(exact[finite].abs().nan_to_num().max())
    error = float((a - exact)[finite].abs().nan_to_num(float("inf")).max())
    allowed = 2 * float((e - exact)[finite].abs().nan_to_num(0.0).max())
    return error <= allowed + torch.finfo(actual.dtype).eps * scale


def _ulps(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of each value's neighbours; of denormal numbers that of the least normal one's."""
    facts = torch.finfo(dtype)
    _, exponents = torch.frexp(exact.abs().nan_to_num().clamp(min=facts.tiny))
    return facts.eps * torch.exp2(exponents.double() - 1)


def each_no_farther(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor,
    tolerances: dict[str, float],
    by_the_largest: bool,
) -> bool:
    """Each element within the tolerance of the CPU's, or within twice the CPU's own error there and an ulp.

    Both round what they compute in f32 or better: half an ulp. The other half is for what f32 lost before.
    """
    named = {"atol": tolerances.get("atol"), "rtol": tolerances.get("rtol")}
    relative, absolute = get_tolerances(expected, **named)
    x, a, e = (each.double() for each in (exact, actual, expected))
    ulps = _ulps(x, actual.dtype)
    if by_the_largest:
        ulps = ulps.max()
    close = torch.isclose(a, e, rtol=relative, atol=absolute, equal_nan=True)
    error = (a - x).abs().nan_to_num(float("inf"))
    allowed = 2 * (e - x).abs().nan_to_num(0.0) + ulps
    return bool((close | (error <= allowed)).all())


def difference_of(
    actual: Any,
    expected: Any,
    exact: Any,
    tolerances: dict[str, float],
    device: str,
    by_the_largest: bool = False,
) -> str:
    """ "" when they agree. `exact`: the same in f64."""
    got, got_spec = _pytree.tree_flatten(actual)
    want, want_spec = _pytree.tree_flatten(expected)
    if got_spec != want_spec:
        return f"results are nested as {got_spec}, not {want_spec}"
    wide = _pytree.tree_leaves(exact) if exact is not None else [None] * len(want)
    for i, (a, e, x) in enumerate(zip(got, want, wide, strict=True)):
        if not isinstance(e, torch.Tensor):
            if a != e and not (a != a and e != e):
                return f"result {i} is {a!r}, not {e!r}"
            continue
        if a.device.type != torch.device(device).type:
            return f"result {i} is on {a.device}"
        try:
            assert_close(a.cpu(), e, equal_nan=True, check_stride=False, **tolerances)
        except AssertionError as error:
            if (
                x is None
                or not (e.dtype.is_floating_point or e.dtype.is_complex)
                or a.shape != e.shape
                or not no_farther(a.cpu(), e, x)
                or (
                    e.dtype in SIXTEEN_BITS and not each_no_farther(a.cpu(), e, x, tolerances, by_the_largest)
                )
            ):
                return f"result {i}: " + " ".join(str(error).split())
    return ""
