#include "buffers.h"

#include "counters.h"
#include "frames.h"
#include "records.h"
#include "settings.h"

#include <deque>
#include <map>

namespace agx_guard {

namespace {

struct Kept {
  std::mutex lock;
  std::map<const void*, std::shared_ptr<Buffer>> buffers;                // by the command buffer's address
  std::map<const void*, std::deque<std::weak_ptr<Buffer>>> uncommitted;  // by queue, oldest first
  std::deque<id> recent;                                                 // of completed buffers, oldest first
};

Kept& kept() {
  static auto* const made = new Kept;
  return *made;
}

// Decides under the lock; the encoders that this call returns are to be released without it.
std::vector<id> take_encoders(Buffer& buffer) {
  const std::lock_guard hold(buffer.lock);
  return std::move(buffer.encoders);
}

void release_all(std::vector<id>& encoders) {
  for (const id encoder : encoders) [encoder release];
  encoders.clear();
}

// What an idle encoder has bound is let go with its buffer: it may be large.
void let_go_of_settings(id encoder) {
  // A call on it may itself be waiting for buffers to complete, so this thread must not wait for the call.
  Record* const record = try_lock_record(encoder);
  if (!record) return;
  if (!record->kept.unfinished() && !record->kept.empty()) {
    record->kept.clear();
    record->forgets = true;
  }
  record->lock.unlock();
}

void completed(const std::shared_ptr<Buffer>& buffer) {
  const std::vector<id> encoders = take_encoders(*buffer);
  for (const id encoder : encoders) let_go_of_settings(encoder);
  counters.encoders_kept_past_completion.add(encoders.size());
  Kept& all = kept();
  const std::lock_guard hold(all.lock);
  all.recent.insert(all.recent.end(), encoders.begin(), encoders.end());
}

// By a thread that makes an encoder, not by the one that reports completion: a release may wait for a call,
// and that call for a completion.
std::vector<id> take_old(Kept& all) {
  std::vector<id> old;
  const std::lock_guard hold(all.lock);
  while (all.recent.size() > settings().recent) {
    old.push_back(all.recent.front());
    all.recent.pop_front();
  }
  return old;
}

// The buffers of the queue whose encoders are let go since too many wait for a commit.
std::vector<std::shared_ptr<Buffer>> note_uncommitted(Kept& all, const std::shared_ptr<Buffer>& buffer) {
  std::vector<std::shared_ptr<Buffer>> abandoned;
  auto& waiting = all.uncommitted[(const void*)buffer->queue];
  std::erase_if(waiting, [](const std::weak_ptr<Buffer>& one) {
    const std::shared_ptr<Buffer> alive = one.lock();
    if (!alive) return true;
    const std::lock_guard hold(alive->lock);
    return alive->committed;
  });
  waiting.push_back(buffer);
  while (waiting.size() > kUncommitted) {
    if (std::shared_ptr<Buffer> oldest = waiting.front().lock()) abandoned.push_back(std::move(oldest));
    waiting.pop_front();
  }
  return abandoned;
}

}  // namespace

Buffer::Buffer(id<MTLCommandQueue> queue) : queue([queue retain]) {}

Buffer::~Buffer() {
  for (const id encoder : encoders) [encoder release];
  for (const id<MTLCommandBuffer> follower : followers) [follower release];
  [queue release];
}

std::shared_ptr<Buffer> known_buffer(id<MTLCommandBuffer> buffer) {
  Kept& all = kept();
  const std::lock_guard hold(all.lock);
  const auto found = all.buffers.find((const void*)buffer);
  return found == all.buffers.end() ? nullptr : found->second;
}

std::shared_ptr<Buffer> buffer_of(id<MTLCommandBuffer> buffer) {
  if (std::shared_ptr<Buffer> known = known_buffer(buffer)) return known;
  const Inside own;
  const auto made = std::make_shared<Buffer>([buffer commandQueue]);
  const std::shared_ptr<Buffer> of_handler = made;
  [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
    completed(of_handler);
  }];
  std::vector<std::shared_ptr<Buffer>> abandoned;
  {
    Kept& all = kept();
    const std::lock_guard hold(all.lock);
    all.buffers[(const void*)buffer] = made;
    abandoned = note_uncommitted(all, made);
  }
  counters.buffers_abandoned.add(abandoned.size());
  for (const std::shared_ptr<Buffer>& one : abandoned) {
    std::vector<id> encoders = take_encoders(*one);
    release_all(encoders);
  }
  return made;
}

void keep_encoder(const std::shared_ptr<Buffer>& buffer, id encoder) {
  if (!settings().keep) return;
  {
    const std::lock_guard hold(buffer->lock);
    buffer->encoders.push_back([encoder retain]);
  }
  std::vector<id> old = take_old(kept());
  release_all(old);
}

void commit_behind(Buffer& buffer, id<MTLCommandBuffer> follower) {
  {
    const std::lock_guard hold(buffer.lock);
    if (!buffer.committed) {
      buffer.followers.push_back([follower retain]);
      return;
    }
  }
  [follower commit];
}

void committed(id<MTLCommandBuffer> buffer) {
  const std::shared_ptr<Buffer> known = known_buffer(buffer);
  if (!known) return;
  std::vector<id<MTLCommandBuffer>> followers;
  {
    const std::lock_guard hold(known->lock);
    known->committed = true;
    followers.swap(known->followers);
  }
  const Inside own;
  for (const id<MTLCommandBuffer> follower : followers) {
    [follower commit];
    [follower release];
  }
}

void forget_buffer(id<MTLCommandBuffer> buffer) {
  std::shared_ptr<Buffer> gone;
  Kept& all = kept();
  const std::lock_guard hold(all.lock);
  const auto found = all.buffers.find((const void*)buffer);
  if (found == all.buffers.end()) return;
  gone = std::move(found->second);
  all.buffers.erase(found);
}

void let_go_of_all() {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<id> encoders;
  {
    Kept& all = kept();
    const std::lock_guard hold(all.lock);
    for (auto& [_, buffer] : all.buffers) buffers.push_back(std::move(buffer));
    all.buffers.clear();
    all.uncommitted.clear();
    encoders.assign(all.recent.begin(), all.recent.end());
    all.recent.clear();
  }
  for (const std::shared_ptr<Buffer>& buffer : buffers) {
    for (const id encoder : take_encoders(*buffer)) encoders.push_back(encoder);
  }
  release_all(encoders);
}

bool has_open_encoder(id<MTLCommandBuffer> buffer) {
  const std::shared_ptr<Buffer> known = known_buffer(buffer);
  if (!known) return false;
  const std::lock_guard hold(known->lock);
  for (const id encoder : known->encoders) {
    if (is_open(encoder)) return true;
  }
  return false;
}

size_t count_kept() {
  Kept& all = kept();
  const std::lock_guard hold(all.lock);
  size_t count = all.recent.size();
  for (const auto& [_, buffer] : all.buffers) {
    const std::lock_guard of_buffer(buffer->lock);
    count += buffer->encoders.size();
  }
  return count;
}

}  // namespace agx_guard
