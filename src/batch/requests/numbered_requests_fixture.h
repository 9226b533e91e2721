// numbered_requests_fixture.h: requests whose payloads are numbers, for tests of a RequestQueue.
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "batch/requests/owed_fixture.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch::test {

// Payloads are indices of this array's bytes: handles that are never looked at.
inline char handles[20'000];
inline void* handle(size_t i) { return &handles[i]; }
inline size_t index_of(void* payload) { return static_cast<size_t>(static_cast<char*>(payload) - handles); }
inline std::vector<size_t> indices(const std::vector<void*>& payloads) {
  std::vector<size_t> out;
  for (void* p : payloads) out.push_back(index_of(p));
  return out;
}

inline QueueOptions options(int64_t max_rows, Duration max_wait = std::chrono::milliseconds(5),
                            size_t capacity = 16384) {
  QueueOptions o;
  o.limits.max_rows = max_rows;
  o.limits.max_wait = max_wait;
  o.capacity = capacity;
  return o;
}

inline Request request(size_t i, uint64_t group = 0) {
  Request r;
  r.payload = handle(i);
  r.group = group;
  return r;
}

inline void run_empty(RequestQueue& queue, const Work& work) {
  queue.formed(work.ticket);
  CHECK(mine(queue.ran(work.ticket)));
  queue.finish(work.ticket, false);
}

}  // namespace heddle::batch::test
