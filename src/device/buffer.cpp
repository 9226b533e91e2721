#include "device/buffer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/yield.h"
#include "device/row_faults.h"

namespace heddle::device {

namespace {

// For one more, for the last write and for as many others: the destructor, which cannot fail, lists all uses
// where the reads are.
void make_room(std::vector<Point>& uses, size_t others) {
  if (uses.capacity() < uses.size() + others + 2) uses.reserve(2 * uses.size() + others + 2);
}

void add_use(std::vector<Point>& uses, const Point& point, size_t others) {
  for (Point& use : uses) {
    if (use.timeline == point.timeline) {
      use.value = std::max(use.value, point.value);
      return;
    }
  }
  std::erase_if(uses, [](const Point& use) { return use.done(); });
  make_room(uses, others);
  uses.push_back(point);
}

}  // namespace

Buffer::~Buffer() {
  if (recycler_ == nullptr) return;
  std::vector<Point> uses;
  if (fork_generation() != generation_) {
    new (&history_) decltype(history_)();  // as a thread of the parent's may have left it, it stays
  } else if (marked_.load_acquire()) {     // pairs with mark_read(), mark_write()
    auto history = history_.lock();
    uses = std::move(history->reads);  // which has room
    for (Point& write : history->writes) uses.push_back(std::move(write));
    if (!history->last_write.done()) uses.push_back(std::move(history->last_write));
  }
  std::erase_if(uses, [](const Point& use) { return use.done(); });
  recycler_->recycle(std::move(memory_), std::move(uses));
}

void Buffer::collect_waits(bool write, const Timeline* own, std::vector<Point>& waits) const {
  if (!marked_.load_acquire()) return;  // pairs with mark_read(), mark_write()
  const auto add = [&](const Point& point) {
    if (point.timeline.get() == own || point.done()) return;
    for (Point& known : waits) {
      if (known.timeline == point.timeline) {
        known.value = std::max(known.value, point.value);
        return;
      }
    }
    waits.push_back(point);
  };
  const auto history = history_.lock();
  add(history->last_write);
  for (const Point& each : history->writes) add(each);
  if (!write) return;
  for (const Point& read : history->reads) add(read);
}

void Buffer::mark_read(const Point& point) {
  auto history = history_.lock();
  marked_.store_release(true);
  add_use(history->reads, point, history->writes.size());
}

void Buffer::mark_write(const Point& point, Ref<const RowFaults> writer) {
  auto history = history_.lock();
  marked_.store_release(true);
  make_room(history->reads, 0);
  history->last_write = point;
  history->writer = std::move(writer);
  history->writes.clear();  // the write has waited for them
  history->reads.clear();
}

// At once: between two steps another thread's use would be lost, and the second might find no memory.
void Buffer::mark_write_beside(const Point& point) {
  auto history = history_.lock();
  marked_.store_release(true);
  make_room(history->reads, history->writes.size() + 1);
  if (!history->last_write.done()) add_use(history->writes, history->last_write, 0);
  history->last_write = point;
}

void Buffer::forget_writer() {
  if (marked_.load_acquire()) history_.lock()->writer = nullptr;  // pairs with mark_read(), mark_write()
}

Ref<const RowFaults> Buffer::writer() const {
  if (!marked_.load_acquire()) return nullptr;  // pairs with mark_read(), mark_write()
  return history_.lock()->writer;
}

Status Buffer::fault() const {
  const Ref<const RowFaults> last = writer();
  return last == nullptr ? Status() : last->whole();
}

// Of the threads that may hold it in a child, those of the child give it back.
Status Buffer::readable() const {
  if (fork_generation() == generation_ || !marked_.load_acquire()) return {};
  for (Backoff pause; pause.spin();) {
    if (history_.try_lock()) return {};
  }
  return forked();
}

std::vector<Point> Buffer::pending() const {
  std::vector<Point> points;
  if (!marked_.load_acquire()) return points;  // pairs with mark_read(), mark_write()
  const auto history = history_.lock();
  if (!history->last_write.done()) points.push_back(history->last_write);
  for (const std::vector<Point>* uses : {&history->writes, &history->reads}) {
    for (const Point& use : *uses) {
      if (!use.done()) points.push_back(use);
    }
  }
  return points;
}

}  // namespace heddle::device
