"""A stranger's kernel writes to an illegal address in the context that Heddle shares: the card is lost."""

from __future__ import annotations

import ctypes

ILLEGAL_ADDRESS = 700
NAME = "CUDA_ERROR_ILLEGAL_ADDRESS"
# Writes to the address 64, where nothing is mapped. The driver compiles it.
KERNEL = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry wild()
{
  .reg .b64 %address;
  .reg .b32 %value;
  mov.u64 %address, 64;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
\0"""


def launch_wild_kernel(card: int) -> None:
    driver = ctypes.CDLL("libcuda.so.1")

    def check(what: str, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{what} answered {code}")

    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    device = ctypes.c_int()
    check("cuInit", driver.cuInit(0))
    check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), card))
    check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))
    check("cuModuleLoadData", driver.cuModuleLoadData(ctypes.byref(module), KERNEL))
    check("cuModuleGetFunction", driver.cuModuleGetFunction(ctypes.byref(function), module, b"wild"))
    stream = ctypes.c_void_p()
    check("cuStreamCreate", driver.cuStreamCreate(ctypes.byref(stream), 1))
    check("cuLaunchKernel", driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, None, None))


def lose(double: bool, card: int = 0) -> None:
    if double:
        ctypes.CDLL("libcuda.so.1").heddle_cuda_double_lose_context(ILLEGAL_ADDRESS, card)
    else:
        launch_wild_kernel(card)
