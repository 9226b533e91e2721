// omp_scope.h: OpenMP teams of one while a thread runs our work.
//
//   What       oneDNN asks OpenMP for a team; we split work ourselves (team.h), so a team is this thread
//              alone. The calling thread's setting is saved, set to one, and restored: PyTorch in the same
//              process may share the one libgomp and must not notice us.
//   Threads    The setting belongs to the thread; make and end a scope on one thread.
//   Blocks     Never.
#pragma once

namespace heddle::host {

class OmpScope {
 public:
  OmpScope();
  ~OmpScope();
  OmpScope(const OmpScope&) = delete;
  OmpScope& operator=(const OmpScope&) = delete;

 private:
  int before_;
};

int omp_threads_here();  // what a parallel region started by this thread would get

}  // namespace heddle::host
