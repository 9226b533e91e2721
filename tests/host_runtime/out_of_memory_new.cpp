#include <cstdlib>
#include <new>

#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle::test {

thread_local int64_t fails_in = 0, living = 0;
thread_local bool fails_from_there = false;

namespace {

thread_local int of_the_system = 0;

bool fails_now() {
  if (of_the_system > 0) return false;
  if (fails_in > 0 && --fails_in == 0) {
    if (fails_from_there) fails_in = -1;
    return true;
  }
  return fails_in < 0;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  ++living;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void deallocate(void* memory) {
  if (memory == nullptr) return;
  --living;
  std::free(memory);
}

}  // namespace
}  // namespace heddle::test

// Of the Metal double, whose memory is the system's (tests/metal_double/foundation/system_memory.h).
extern "C" __attribute__((visibility("default"))) void heddle_memory_of_the_system(int more) {
  heddle::test::of_the_system += more;
}

using heddle::test::allocate;
using heddle::test::deallocate;

void* operator new(std::size_t bytes) { return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { deallocate(memory); }
void operator delete(void* memory, std::size_t) noexcept { deallocate(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { deallocate(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { deallocate(memory); }
