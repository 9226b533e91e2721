// device_memory.h: what the double has allocated, and who may name it.
#pragma once

#include <cstdint>

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda_double {

cuda::Address allocate(uint64_t bytes);  // marked
void release(cuda::Address address);
void* allocate_pinned(uint64_t bytes);
void release_pinned(void* at);
int64_t allocated_bytes();
bool is_allocated(cuda::Address address);  // in memory of the device

// Of the host, for a copy or a write of `bytes`. Ends the process unless all of them are allocated.
std::byte* host_of(cuda::Address address, uint64_t bytes, const char* what);

// The same for what a library reads. Ends the process where it begins with what nobody has written.
void require_written(cuda::Address address, uint64_t bytes, const char* what);

[[noreturn]] void stop(const char* what, const char* why);

}  // namespace heddle::cuda_double
