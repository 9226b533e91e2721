// buffers.h: command buffers whose encoders are kept, and for how long.
//
//   Kept      An encoder is retained from its factory until its command buffer completes, then among the
//             newest AGX_GUARD_RECENT, for threads that hold a bare pointer to it.
//   Bound     Of a queue, at most kUncommitted uncommitted buffers have their encoders kept: an
//             encoder retains its buffer, and Metal stops handing out buffers when 64 of a queue are alive.
//   Threads   A lock per buffer. One lock for all is taken when an encoder is made and when its buffer
//             completes, never by a call on an encoder.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <mutex>
#include <vector>

namespace agx_guard {

struct Record;

constexpr size_t kUncommitted = 32;

struct Buffer {
  explicit Buffer(id<MTLCommandQueue> queue);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  id<MTLCommandQueue> const queue;  // retained

  std::mutex lock;
  bool committed = false;
  std::vector<id> encoders;                     // retained
  std::vector<id<MTLCommandBuffer>> followers;  // retained; of late calls, to be committed right behind it
};

// The guard's knowledge of a command buffer, made at its first encoder.
std::shared_ptr<Buffer> buffer_of(id<MTLCommandBuffer> buffer);

// Its record if it has one.
std::shared_ptr<Buffer> known_buffer(id<MTLCommandBuffer> buffer);

void keep_encoder(const std::shared_ptr<Buffer>& buffer, id encoder);

// Commits `follower`, behind its buffer: now, or as soon as that is committed.
void commit_behind(Buffer& buffer, id<MTLCommandBuffer> follower);

// After -commit's original has returned.
void committed(id<MTLCommandBuffer> buffer);

// From a command buffer's -dealloc.
void forget_buffer(id<MTLCommandBuffer> buffer);

// Lets go of all that is kept.
void let_go_of_all();

// Whether an encoder of the buffer has not ended.
bool has_open_encoder(id<MTLCommandBuffer> buffer);

size_t count_kept();

}  // namespace agx_guard
