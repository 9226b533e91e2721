#include "stream_names.h"

#include <c10/util/Exception.h>

#include <new>

#include "device.h"
#include "process_end.h"

namespace heddle::torch_backend {
namespace {

// After what the stream was given. Where there is no memory for an event, that is waited for instead.
Event end_of(const Stream& stream) {
  try {
    return stream.record();
  } catch (const std::bad_alloc&) {
    try {
      stream.synchronize();
    } catch (const Error&) {  // its failure: nothing is under way any more
    }
    return {};
  }
}

}  // namespace

StreamNames& stream_names() {
  static StreamNames& names = *new StreamNames;  // threads may outlive every static
  return names;
}

bool has_failed(const Stream& stream) {
  if (!stream.query()) return false;
  try {
    stream.synchronize(std::chrono::nanoseconds(0));
  } catch (const Error& error) {
    return error.code() != ErrorCode::deadline;
  }
  return false;
}

// ---- threads' own

void StreamNames::add(c10::DeviceIndex index, const Stream& stream) {
  Event over;  // let go of outside the lock, as are those below
  const std::lock_guard lock(lock_);
  Named& named = named_[{index, stream.id()}];
  if (named.holders++ > 0) return;
  named.stream = stream;
  over = std::exchange(named.last, {});  // of this very stream, or of one that has failed since
}

void StreamNames::remove(c10::DeviceIndex index, const Stream& stream) {
  std::optional<Stream> dropped;
  Event last = end_of(stream);
  const std::lock_guard lock(lock_);
  Named& named = named_.at({index, stream.id()});
  if (--named.holders > 0) return;
  dropped.swap(named.stream);
  std::swap(last, named.last);
  named.was_replaced = false;
}

std::optional<Stream> StreamNames::find(const Key& key) {
  std::optional<Stream> stream;
  Event last;
  bool was_replaced = false;
  {
    const std::lock_guard lock(lock_);
    const auto found = named_.find(key);
    if (found == named_.end()) return std::nullopt;
    Named& named = found->second;
    stream = named.stream;
    last = named.last;
    if (!stream) named.was_replaced = true;
    was_replaced = named.was_replaced;
  }
  if (stream && !was_replaced) return stream;
  Stream replacement = default_stream(device_at(key.first));
  if (stream) {  // another thread's by now: who means the former one meets what came to its replacement
    stream->wait(replacement.record());
    return stream;
  }
  if (!last.query()) replacement.wait(last);
  return replacement;
}

bool StreamNames::has_stream(const Key& key) {
  const std::lock_guard lock(lock_);
  const auto found = named_.find(key);
  return found != named_.end() && found->second.stream.has_value();
}

// ---- those that torch.Stream made

int64_t StreamNames::make(c10::DeviceIndex index) {
  const std::lock_guard lock(lock_);
  const int64_t number = kFirstMade + next_.at(slot(index))++ % kMade;
  named_.try_emplace({index, number});
  return number;
}

StreamNames::Named& StreamNames::made(const Key& key) {
  const auto found = named_.find(key);
  TORCH_CHECK(found != named_.end(), "there was no stream ", key.second,
              " of device heddle:", static_cast<int>(key.first));
  return found->second;
}

void StreamNames::enter(const Key& key) {
  const std::lock_guard lock(lock_);
  Named& named = made(key);
  ++named.holders;
  ++named.entered;
}

void StreamNames::leave(const Key& key) {
  std::optional<Idle> left;
  {
    const std::lock_guard lock(lock_);
    Named& named = made(key);
    if (--named.holders > 0 || !named.stream || named.is_kept) return;
    left.emplace(key, *named.stream, named.entered);
  }
  give_back(*left, When::wanted);
}

// A thread has gone to lease a stream for a name: others that want it wait for that one.
class StreamNames::Leasing {
 public:
  Leasing(StreamNames& names, const Key& key) : names_(names), key_(key) {}
  ~Leasing() {
    const std::lock_guard lock(names_.lock_);
    names_.made(key_).is_leasing = false;
    names_.leased_.notify_all();
  }
  Leasing(const Leasing&) = delete;
  Leasing& operator=(const Leasing&) = delete;

 private:
  StreamNames& names_;
  const Key key_;
};

Stream StreamNames::stream_of(const Key& key) {
  const FreeGil without_gil;  // until all is done: another thread may wait for this one's lease
  Event before;
  {
    std::unique_lock lock(lock_);
    Named& named = made(key);
    leased_.wait(lock, [&] { return !named.is_leasing; });
    if (named.stream) return *named.stream;
    named.is_leasing = true;
    before = named.last;
  }
  const Leasing leasing(*this, key);
  const Wanted wanted(*this, key.first);
  Stream stream(device_at(key.first));
  if (!before.query()) stream.wait(before);
  const std::lock_guard lock(lock_);
  Named& named = made(key);
  named.stream = stream;
  named.last = {};  // `before` is the last holder, and outlives the lock
  ++named.leases;
  return stream;
}

void StreamNames::keep(const Key& key) {
  const std::lock_guard lock(lock_);
  made(key).is_kept = true;
}

std::pair<std::optional<Stream>, Event> StreamNames::work_of(const Key& key) {
  const std::lock_guard lock(lock_);
  const Named& named = made(key);
  return {named.stream, named.last};
}

std::vector<StreamNames::Idle> StreamNames::idle(c10::DeviceIndex index) {
  std::vector<Idle> found;
  const std::lock_guard lock(lock_);
  for (auto at = named_.lower_bound({index, kFirstMade}); at != named_.end() && at->first.first == index;
       ++at) {
    const Named& named = at->second;
    if (named.holders == 0 && named.stream && !named.is_kept)
      found.push_back({at->first, *named.stream, named.entered});
  }
  return found;
}

// False: it stays, and nobody uses it.
bool StreamNames::give_back(const Idle& idle, When when) {
  std::optional<Stream> dropped;
  Event last = end_of(idle.stream);
  const bool is_over = last.query();
  const std::lock_guard lock(lock_);
  Named& named = made(idle.key);
  // Who came meanwhile leaves himself, after what he has submitted.
  if (named.holders > 0 || named.entered != idle.entered || !named.stream) return true;
  const bool is_wanted = when == When::wanted && wanted_.at(slot(idle.key.first)) > 0;
  if (!is_over && !is_wanted && when != When::now) return false;
  dropped.swap(named.stream);
  std::swap(last, named.last);
  return true;
}

void StreamNames::give_back_idle(c10::DeviceIndex index) {
  for (const Idle& each : idle(index)) give_back(each, When::over);
}

void StreamNames::drop_failed() {
  struct Seen {
    Key key;
    Stream stream;
    uint64_t leases;
  };
  std::vector<Seen> all;
  {
    const std::lock_guard lock(lock_);
    for (const auto& [key, named] : named_) {
      if (is_made(key.second) && named.stream) all.push_back({key, *named.stream, named.leases});
    }
  }
  for (const Seen& each : all) {
    if (!has_failed(each.stream)) continue;
    std::optional<Stream> dropped;
    Event last = end_of(each.stream);  // who waits for it is told
    const std::lock_guard lock(lock_);
    Named& named = made(each.key);
    if (!named.stream || named.leases != each.leases) continue;
    dropped.swap(named.stream);
    std::swap(last, named.last);
    named.is_kept = false;
  }
}

bool StreamNames::is_short(c10::DeviceIndex index) {
  const Device& device = device_at(index);
  const int leased = device.stats().streams_leased;
  const std::lock_guard lock(lock_);
  return leased + wanted_.at(slot(index)) >= device.streams();
}

// Counted first: who leaves a stream later gives it back.
StreamNames::Wanted::Wanted(StreamNames& names, c10::DeviceIndex index) : names_(names), index_(index) {
  {
    const std::lock_guard lock(names_.lock_);
    ++names_.wanted_.at(slot(index));
  }
  bool some_work = false;
  for (const Idle& each : names_.idle(index)) some_work |= !names_.give_back(each, When::over);
  if (!some_work || !names_.is_short(index)) return;
  for (const Idle& each : names_.idle(index)) names_.give_back(each, When::now);
}

StreamNames::Wanted::~Wanted() {
  const std::lock_guard lock(names_.lock_);
  --names_.wanted_.at(slot(index_));
}

}  // namespace heddle::torch_backend
