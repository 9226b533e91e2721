// once_map.h: a cache that makes each value once, however many threads ask.
//
//   What       get_or_make(key, make) gives the value of `key`, calling `make` if there is none. Values are
//              immutable and shared. Keys are compared in full; a hash only tells where to look.
//   States     of a key: absent -> in flight (one thread runs make, the others wait for it) -> present ->
//              absent again (evicted or erased). A failed flight goes back to absent: its Status reaches
//              every waiter and is dropped, so that the next call makes again.
//   Invariant  One flight per key. hits + misses = calls of get_or_make and peek.
//   Ordering   What make wrote into the value is visible to every thread that gets it.
//   Threads    All calls, from any thread, except construction and destruction.
//   Blocks     A hit takes no lock and never waits: it counts itself into a ReadEpoch, probes
//              the table and copies the Ref. A miss waits for its flight, which is as long as make.
//              A call with a deadline stops waiting for another thread's make at it (Status::deadline), or
//              when the interrupt check says so; make itself goes on and its value is kept. Without one,
//              nothing ends the wait: for a get_or_make inside a make, whose failure would reach other
//              callers. Insertion and eviction change one slot of the table under the writers' lock; a table
//              is built anew once half of its slots were used, after half as many insertions as entries.
//   make       () -> Result<Ref<const V>>, or Result<Made> to state the entry's bytes (otherwise 0). It runs
//              on the first caller's thread with no lock held, and may ask this map for other keys. If that
//              leads back to a key that waits for it, on this thread or through other threads' makes, the
//              call that would close the circle gets Status::internal naming the key, instead of waiting for
//              itself. An exception from make passes through to its caller; waiters get
//              Status::internal.
//   Memory     A value that finds none to be kept is an answer all the same. Who finds none to ask throws.
//   Limits     By count and by bytes, 0 meaning no bound. CLOCK: a hit marks its entry; the hand takes the
//              first one not marked since it came by last. The newest entry is never its own victim, so one
//              entry larger than the byte limit is kept until the next arrives.
//   Lifetime   A Ref keeps its value alive after eviction. The map drops an evicted value when no reader can
//              be looking at it: at once as a rule, at a later write if a reader is just inside. erase_if()
//              and clear() return after that. Values are destroyed with no lock held. The map outlives all
//              calls.
//   Lookup     Any Q that Hash accepts and that compares with K (a string_view for a string, given a
//              transparent Hash) finds without building a K; K(q) is built on a miss only. hash(q) ==
//              hash(K(q)), and neither Hash nor == calls the map.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/no_memory.h"
#include "base/read_epoch.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle {

template <class K, class V, class Hash = std::hash<K>>
class OnceMap {
 public:
  struct Limits {
    size_t count = 0;
    uint64_t bytes = 0;
  };
  struct Stats {
    // Since construction; tables: that were built.
    uint64_t hits = 0, misses = 0, makes = 0, failures = 0, evictions = 0, tables = 0;
    uint64_t count = 0, bytes = 0, waiting = 0;  // now: entries, and threads in a wait
  };
  struct Made {
    template <class Value>
      requires std::convertible_to<Value, Ref<const V>>
    Made(Value&& v, uint64_t size = 0) : value(std::forward<Value>(v)), bytes(size) {}  // NOLINT: implicit
    Ref<const V> value;
    uint64_t bytes;
  };

  explicit OnceMap(Limits limits = Limits()) {
    auto state = state_.lock();
    state->limits = limits;
    renew(*state);
  }
  OnceMap(const OnceMap&) = delete;
  OnceMap& operator=(const OnceMap&) = delete;

  template <class Q = K, class Make>
  Result<Ref<const V>> get_or_make(const Q& key, Make&& make, std::optional<Deadline> deadline = {}) {
    const NoLocksHeld checked;
    const size_t hash = hash_of(key);
    if (Ref<const V> found = probe(key, hash)) [[likely]]
      return found;
    return join_or_make(K(key), hash, make, deadline);
  }

  // The value, or null. Never makes, never waits.
  template <class Q = K>
  Ref<const V> peek(const Q& key) const {
    return probe(key, hash_of(key));
  }

  // Drops the entries whose key satisfies `pred`, which must not call this map. A flight of such a key goes
  // on and answers its present waiters, but its value is not kept and later calls make anew.
  template <class Pred>
  void erase_if(Pred pred) {
    const NoLocksHeld checked;
    settle([&] {
      auto state = state_.lock();
      for (auto node = state->nodes.begin(); node != state->nodes.end();)
        node = pred((*node)->key) ? retire(*state, node) : std::next(node);
      std::erase_if(state->flights, [&](const auto& flight) { return pred(flight.first); });
      seam::did("once_map.erase");
      return state->retirements;
    }());
  }
  void clear() {
    erase_if([](const K&) { return true; });
  }

  // Evicts at once if the new limits ask for it.
  void set_limits(Limits limits) {
    const NoLocksHeld checked;
    settle([&] {
      auto state = state_.lock();
      state->limits = limits;
      evict(*state, nullptr);
      return state->retirements;
    }());
  }

  Stats stats() const {
    auto state = state_.lock();
    Stats out = state->stats;
    out.misses = misses_.load_relaxed();  // read first: an entry is counted before its miss
    const uint64_t calls = readers_.entries();
    out.hits = calls > out.misses ? calls - out.misses : 0;
    out.count = state->nodes.size();
    out.bytes = state->bytes;
    out.waiting = state->waits.size();
    return out;
  }

 private:
  struct Node {
    const K key;
    const size_t hash;
    const uint64_t bytes;
    const Ref<const V> value;
    mutable Atomic<bool> used;  // set by hits, cleared by the hand: a hint that orders nothing

    void touch() const {
      if (!used.load_relaxed()) used.store_relaxed(true);  // a hot entry's line stays shared between cores
    }
  };

  // Empty, then a node's, then a node's that is gone: never another's.
  struct Slot {
    Atomic<size_t> hash;  // written before its node is published, and not again
    Atomic<const Node*> node;
  };
  // Its address alone means something.
  alignas(Node) static inline std::byte no_node_[sizeof(Node)];
  static const Node* gone() { return reinterpret_cast<const Node*>(no_node_); }

  // At most half of the slots are used, so that every probe ends at an empty one. Changed under state_.
  struct Table {
    explicit Table(size_t entries)
        : size(std::bit_ceil(3 * entries + 2)), mask(size - 1), slots(std::make_unique<Slot[]>(size)) {}
    bool has_room() const { return 2 * (used + 1) <= size; }
    void insert(const Node* node) {
      size_t i = node->hash & mask;
      while (slots[i].node.read_on_relaxed() != nullptr) i = (i + 1) & mask;
      slots[i].hash.store_relaxed(node->hash);
      slots[i].node.store_seq_cst(node);  // pairs with find(): what it points to is visible
      ++used;
    }
    // Readers that enter from now on do not find it (ReadEpoch).
    void remove(const Node* node) {
      size_t i = node->hash & mask;
      while (slots[i].node.read_on_relaxed() != node) i = (i + 1) & mask;
      slots[i].node.store_seq_cst(gone());
    }
    template <class Q>
    const Node* find(const Q& key, size_t hash) const {
      for (size_t i = hash & mask;; i = (i + 1) & mask) {
        const Slot& slot = slots[i];
        const Node* const node = slot.node.read_on_seq_cst();  // pairs with insert() and remove()
        if (node == nullptr) return nullptr;
        if (slot.hash.read_on_relaxed() == hash && node != gone() && node->key == key) [[likely]]
          return node;
      }
    }
    const size_t size, mask;
    const std::unique_ptr<Slot[]> slots;
    size_t used = 0;  // by nodes, those that are gone among them
  };

  struct Outcome {
    bool done = false;
    Status failure;
    Ref<const V> value;
  };
  struct Flight {
    const std::thread::id maker = std::this_thread::get_id();
    Guarded<Outcome, Rank::kCache> outcome;  // never held together with state_
  };

  using Face = std::list<std::unique_ptr<Node>>;  // the clock's
  using Tables = std::list<std::unique_ptr<Table>>;
  struct Garbage {  // comes and goes without memory
    Tables tables;
    Face nodes;
    void take(Garbage& other) {
      tables.splice(tables.end(), other.tables);
      nodes.splice(nodes.end(), other.nodes);
    }
  };

  struct State {
    Limits limits;
    Face nodes;
    typename Face::iterator hand = nodes.end();  // the next node it looks at; the end means the first
    uint64_t bytes = 0;
    std::unique_ptr<Table> table;  // what table_ points to
    std::unordered_map<K, Ref<Flight>, Hash> flights;
    std::unordered_map<std::thread::id, const Flight*> waits;  // whose make each waiting thread depends on
    // Unpublished, perhaps still looked at. What retirement n left behind is gone when freed >= n.
    Garbage retired, draining;
    ReadEpoch::Grace grace;  // of what drains
    uint64_t retirements = 0, draining_up_to = 0, freed = 0;
    Stats stats;
  };

  // Ends its flight also when make throws, so that no waiter waits for ever.
  class Landing {
   public:
    Landing(OnceMap& map, K key, size_t hash, Ref<Flight> flight)
        : map_(map), key_(std::move(key)), hash_(hash), flight_(std::move(flight)) {}
    Landing(const Landing&) = delete;
    Landing& operator=(const Landing&) = delete;
    ~Landing() {
      const auto why = [&] {
        return Status::internal("the make of ", describe(key_), " threw an exception");
      };
      if (flight_ != nullptr) land(or_exhausted("a make", why));
    }
    void land(Result<Made> made) {
      map_.land(std::move(key_), hash_, *std::exchange(flight_, nullptr), std::move(made));
    }
    const K& key() const { return key_; }

   private:
    OnceMap& map_;
    K key_;
    size_t hash_;
    Ref<Flight> flight_;
  };

  // With more than this left behind a writer waits for readers to leave, so that a stalled reader cannot fill
  // the memory.
  static constexpr uint64_t kBacklog = 32;

  template <class Q>
  static size_t hash_of(const Q& key) {
    uint64_t h = Hash{}(key);  // std::hash of an integer is that integer: spread it over the low bits
    h = (h ^ (h >> 32)) * 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(h ^ (h >> 29));
  }

  static std::string describe(const K& key) {
    if constexpr (std::convertible_to<const K&, std::string_view> || std::is_arithmetic_v<K> ||
                  requires { to_string(key); }) {
      return text("key '", key, "'");
    } else {
      return "a key";
    }
  }

  template <class Q>
  Ref<const V> probe(const Q& key, size_t hash) const {
    {
      const auto inside = readers_.enter();
      const Table* table = table_.load_seq_cst();  // pairs with renew(); seq_cst: see ReadEpoch
      seam::did("once_map.read_table");
      yield_point("once_map.probe");
      const Node* const node = table->find(key, hash);
      seam::did("once_map.probe", node != nullptr);
      if (node != nullptr) [[likely]] {
        node->touch();
        return node->value;
      }
    }
    misses_.add_relaxed(1);
    return nullptr;
  }

  template <class Make>
  Result<Ref<const V>> join_or_make(K key, size_t hash, Make& make, std::optional<Deadline> deadline) {
    const auto me = std::this_thread::get_id();
    auto own = std::make_shared<Flight>();  // first: a key without a flight would stay so
    Ref<Flight> flight;
    bool joined = false;
    {
      auto state = state_.lock();
      if (const Node* node = state->table->find(key, hash)) {  // landed since the probe
        seam::did("once_map.find_landed");
        node->touch();
        return node->value;
      }
      auto [place, first] = state->flights.try_emplace(key);
      if (first) place->second = std::move(own);
      flight = place->second;
      joined = !first;
      if (joined && leads_to(*state, *flight, me)) {
        seam::did("once_map.refuse_circle");
        return Status::internal(
            "OnceMap: the make of ", describe(key),
            " asks for that key again, itself or through other makes: it would wait for itself");
      }
      if (joined) state->waits[me] = flight.get();
      seam::did("once_map.board", joined);
    }
    if (joined) return join(key, *flight, deadline);
    Landing landing(*this, std::move(key), hash, std::move(flight));
    Result<Made> made = as_made(landing.key(), make());
    if (!made.ok()) {
      landing.land(made.status());
      return made.status();
    }
    Ref<const V> value = made->value;
    landing.land(std::move(made));
    return value;
  }

  Result<Ref<const V>> join(const K& key, Flight& flight, std::optional<Deadline> deadline) {
    {
      auto outcome = flight.outcome.lock();
      const auto done = [&] { return outcome->done; };
      if (!deadline.has_value()) outcome.wait(done);
      if (!deadline.has_value() || outcome.wait_until(*deadline, done)) {
        seam::did("once_map.get_outcome", outcome->failure.ok());
        if (!outcome->failure.ok()) return outcome->failure;
        return outcome->value;
      }
    }
    {
      auto state = state_.lock();
      state->waits.erase(std::this_thread::get_id());
      seam::did("once_map.wait_no_longer");
    }
    return Status::deadline("another thread was still making ", describe(key), " at the deadline");
  }

  template <class X>
  static Result<Made> as_made(const K& key, Result<X> result) {
    if (!result.ok()) return result.status();
    Made made(std::move(result).value());
    if (made.value == nullptr) {
      return Status::internal("the make of ", describe(key), " gave a null value; it should give a Status");
    }
    return made;
  }

  // Whether `flight` can only land after thread `me` went on.
  static bool leads_to(const State& state, const Flight& flight, std::thread::id me) {
    for (const Flight* next = &flight; next != nullptr;) {
      if (next->maker == me) return true;
      const auto wait = state.waits.find(next->maker);
      next = wait == state.waits.end() ? nullptr : wait->second;
    }
    return false;
  }

  void land(K key, size_t hash, Flight& flight, Result<Made> made) {
    yield_point("once_map.land");
    Status failure = made.status();
    Ref<const V> value = made.ok() ? made->value : nullptr;
    uint64_t settle_up_to = 0;
    {
      auto state = state_.lock();
      const auto mine = state->flights.find(key);
      // False when it was erased meanwhile.
      const bool wanted = mine != state->flights.end() && mine->second.get() == &flight;
      if (made.ok()) {
        ++state->stats.makes;
      } else {
        ++state->stats.failures;
      }
      const auto keep = [&] { return settle_up_to = insert(*state, std::move(key), hash, *made), Status(); };
      if (made.ok() && wanted) static_cast<void>(or_exhausted("a value", keep));
      std::erase_if(state->waits, [&](const auto& wait) { return wait.second == &flight; });
      if (wanted) state->flights.erase(mine);
      seam::did("once_map.land", wanted);
    }
    {
      auto outcome = flight.outcome.lock();
      outcome->failure = std::move(failure);
      outcome->value = std::move(value);
      outcome->done = true;
      seam::did("once_map.tell_outcome", outcome->failure.ok());
      outcome.notify_all();
    }
    settle(settle_up_to > kBacklog ? settle_up_to - kBacklog : 0);
  }

  uint64_t insert(State& state, K key, size_t hash, const Made& made) {
    Face one;
    one.push_back(
        std::unique_ptr<Node>(new Node{std::move(key), hash, made.bytes, made.value, Atomic<bool>(false)}));
    const Node* newest = one.front().get();
    if (!state.table->has_room()) renew(state);  // the last that may throw
    state.table->insert(newest);
    seam::did("once_map.insert");
    state.nodes.splice(state.hand, one);  // just behind the hand: the hand comes to it last
    state.bytes += made.bytes;
    evict(state, newest);
    return state.retirements;
  }

  static bool over(const State& state) {
    const Limits& limits = state.limits;
    return (limits.count != 0 && state.nodes.size() > limits.count) ||
           (limits.bytes != 0 && state.bytes > limits.bytes);
  }

  void evict(State& state, const Node* newest) {
    // Two rounds clear every mark; hits that set them again meanwhile must not keep the hand going.
    size_t patience = 2 * state.nodes.size();
    while (over(state) && state.nodes.size() > (newest != nullptr ? 1u : 0u)) {
      if (state.hand == state.nodes.end()) state.hand = state.nodes.begin();
      const Node& node = **state.hand;
      const bool marked = patience > 0 && node.used.load_relaxed();
      if (patience > 0) --patience;
      if (marked) node.used.store_relaxed(false);
      if (marked || &node == newest) {
        ++state.hand;
        continue;
      }
      ++state.stats.evictions;
      retire(state, state.hand);
    }
  }

  // Gives the node behind it.
  typename Face::iterator retire(State& state, typename Face::iterator node) {
    state.table->remove(node->get());
    seam::did("once_map.remove");
    state.bytes -= (*node)->bytes;
    ++state.retirements;
    const auto next = std::next(node);
    if (node == state.hand) state.hand = next;
    state.retired.nodes.splice(state.retired.nodes.end(), state.nodes, node);
    return next;
  }

  // A table of those that are there, with room for half as many more.
  void renew(State& state) {
    Tables before(1);
    auto next = std::make_unique<Table>(state.nodes.size());
    for (const auto& node : state.nodes) next->insert(node.get());
    table_.store_seq_cst(next.get());  // pairs with probe(): the nodes are visible through it
    seam::did("once_map.renew");
    ++state.stats.tables;
    if (state.table != nullptr) {
      before.front() = std::move(state.table);
      state.retired.tables.splice(state.retired.tables.end(), before);
      ++state.retirements;
    }
    state.table = std::move(next);
  }

  // Frees what no reader can look at any more, and waits until retirements up to `up_to` are among that.
  void settle(uint64_t up_to) {
    for (Backoff backoff;;) {
      Garbage dead;  // destroyed after the lock: the values' destructors are not ours
      bool enough = false;
      {
        auto state = state_.lock();
        while (state->freed < state->retirements) {
          if (state->draining_up_to == state->freed) {
            state->draining.take(state->retired);
            state->draining_up_to = state->retirements;
            state->grace = readers_.begin();
          }
          if (!readers_.passed(state->grace)) break;
          dead.take(state->draining);
          state->freed = state->draining_up_to;
        }
        enough = state->freed >= up_to;
      }
      if (enough) return;
      if (!backoff.spin()) give_way();  // a reader inside cannot notify; it leaves as soon as it gets a core
    }
  }

  ReadEpoch readers_;
  // Written under state_, read inside readers_; never null after construction.
  Atomic<const Table*> table_{nullptr};
  mutable Atomic<uint64_t> misses_;  // a statistic: orders nothing
  mutable Guarded<State, Rank::kCache> state_;
};

}  // namespace heddle
