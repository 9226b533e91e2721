// stream_names.h: streams by the numbers that PyTorch has for them.
//
//   What       The numbers of a device's leases, for streams that threads call on, and those from kFirstMade
//              on, for streams that torch.Stream made. PyTorch copies c10::Streams around and never says when
//              the last is gone, so there are kMade of the latter, handed out in turn, as CUDA's pool does.
//   Threads'   A name whose threads have ended keeps no stream: autograd goes on asking for it, and gets the
//              default stream, behind what the named one was given. A device has few numbers, and gives them
//              to later threads again.
//   Made       Such a name has no lease until something is submitted to it. It keeps the lease while a thread
//              has it as its current stream and while its work is under way, then gives it back: at once
//              where that is over when the last thread leaves, else when one of these functions finds it
//              over. Where all leases are taken and a thread wants one, it is given back beside its work. The
//              next lease waits for what the former one was given.
//   Invariant  No call of Heddle's is made with the lock held.
//   Threads    Any.
//   Blocks     stream_of(), and a thread's first call: to lease, as the device's Exhaustion says.
#pragma once

#include <c10/core/Device.h>
#include <heddle/heddle.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::torch_backend {

constexpr size_t kDevices = 8;  // more than this build can have
inline size_t slot(c10::DeviceIndex index) { return static_cast<size_t>(index); }

class StreamNames {
 public:
  using Key = std::pair<c10::DeviceIndex, int64_t>;
  static constexpr int64_t kFirstMade = 1024, kMade = 16;  // a device has fewer leases than kFirstMade
  static bool is_made(int64_t number) { return number >= kFirstMade; }

  // Of a stream that a thread calls on, by its lease's number.
  void add(c10::DeviceIndex index, const Stream& stream);
  void remove(c10::DeviceIndex index, const Stream& stream);
  std::optional<Stream> find(const Key& key);  // nothing: no stream had this number yet
  bool has_stream(const Key& key);             // a thread calls on it

  // Of one that torch.Stream made.
  int64_t make(c10::DeviceIndex index);
  void enter(const Key& key);  // before stream_of(); RuntimeError: nobody made it
  void leave(const Key& key);  // by who has let go of what stream_of() gave
  Stream stream_of(const Key& key);
  void keep(const Key& key);  // its lease: another library has its handle
  // What it was given last: by its stream, if it has one, else by an event.
  std::pair<std::optional<Stream>, Event> work_of(const Key& key);
  void give_back_idle(c10::DeviceIndex index);
  void drop_failed();  // streams that work no more: the next to use such a name gets another one

  // A thread is about to lease a stream of the device: what lies idle is given back for it.
  class Wanted {
   public:
    Wanted(StreamNames& names, c10::DeviceIndex index);
    ~Wanted();
    Wanted(const Wanted&) = delete;
    Wanted& operator=(const Wanted&) = delete;

   private:
    StreamNames& names_;
    const c10::DeviceIndex index_;
  };

 private:
  struct Named {
    std::optional<Stream> stream;
    int holders = 0;
    Event last;                 // without a stream: behind what it was given
    bool was_replaced = false;  // somebody got the default stream for it
    // Of made ones.
    uint64_t entered = 0, leases = 0;  // how often: who let go of the lock finds whether somebody came
    bool is_leasing = false;
    bool is_kept = false;
  };
  struct Idle {
    Key key;
    Stream stream;
    uint64_t entered;
  };
  class Leasing;
  enum class When : uint8_t { over, wanted, now };

  Named& made(const Key& key);
  std::vector<Idle> idle(c10::DeviceIndex index);
  bool give_back(const Idle& idle, When when);
  bool is_short(c10::DeviceIndex index);

  std::mutex lock_;
  std::condition_variable leased_;
  std::map<Key, Named> named_;
  std::array<int64_t, kDevices> next_{};
  std::array<int, kDevices> wanted_{};  // threads that lease now
};

StreamNames& stream_names();
bool has_failed(const Stream& stream);

}  // namespace heddle::torch_backend
