// system_memory.h: memory that the double allocates where the vendor's library has its own: a test whose
// operator new fails leaves it alone.
//
//   What       For as long as a SystemMemory lives, its thread's allocations are the system's. The program
//              may define heddle_memory_of_the_system(); without it nothing happens.
//   Threads    A local.
#pragma once

extern "C" __attribute__((weak, visibility("default"))) void heddle_memory_of_the_system(int more);

namespace heddle::foundation {

class SystemMemory {
 public:
  SystemMemory() { tell(1); }
  ~SystemMemory() { tell(-1); }
  SystemMemory(const SystemMemory&) = delete;
  SystemMemory& operator=(const SystemMemory&) = delete;

 private:
  static void tell(int more) {
    if (heddle_memory_of_the_system != nullptr) heddle_memory_of_the_system(more);
  }
};

}  // namespace heddle::foundation
