#include "drivers/sim/memory.h"

#include <algorithm>
#include <cstring>

#include "drivers/sim/event_loop.h"

namespace heddle::sim {
namespace {

void copy_range(const device::Buffer& from, const device::Buffer& to, Bytes range) {
  if (range.begin < range.end)
    std::memcpy(to.host() + range.begin, from.host() + range.begin, range.end - range.begin);
}

}  // namespace

void Block::take_from_host(Bytes range) const {
  if (hosts == nullptr) return;
  std::vector<Bytes> left = {range};
  for (const Hidden& each : hidden) {
    std::vector<Bytes> rest;
    for (const Bytes& part : left) {
      if (!overlap(part, each.range)) {
        rest.push_back(part);
        continue;
      }
      if (part.begin < each.range.begin) rest.push_back({part.begin, each.range.begin});
      if (each.range.end < part.end) rest.push_back({each.range.end, part.end});
    }
    left.swap(rest);
  }
  for (const Bytes& part : left) copy_range(*hosts, *bytes, part);
}

void Block::hide_from_host(Bytes range, Position writer) {
  if (hosts == nullptr || range.begin >= range.end) return;
  std::memset(hosts->host() + range.begin, kPoison, range.end - range.begin);
  hidden.push_back({range, writer});
}

void Block::show_host(Position writer) {
  for (const Hidden& each : hidden) {
    if (each.by(writer)) copy_range(*bytes, *hosts, each.range);
  }
  forget_hidden(writer);
}

void Block::forget_hidden(Position writer) {
  std::erase_if(hidden, [&](const Hidden& each) { return each.by(writer); });
}

SimMemory::SimMemory(const void* maker, device::MemoryKind kind, Ref<Block> block, Ref<EventLoop> loop)
    : Memory({maker, kind, block->hosts == nullptr ? nullptr : block->hosts->host(), block->address(),
              block->bytes->bytes()}),
      block_(std::move(block)),
      loop_(std::move(loop)) {
  loop_->given(block_);
}

SimMemory::~SimMemory() { loop_->freed(block_); }

}  // namespace heddle::sim
