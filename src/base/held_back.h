// held_back.h: the last of a line of values, which is held back until somebody wants it.
//
//   What       A Holder says which value it holds back. Who needs a value says want(), and the Holder is
//              asked to send what it holds back where that is this value, or an earlier one.
//   Order      hold() comes before others can learn of the value. So who wants it finds that it is held back,
//              or that it is being sent.
//   Threads    hold(): one at a time. The rest: any.
//   Blocks     want(), as long as Holder::send().
//   Lifetime   The Holder may be gone: it has sent all by then, or does so while it goes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/atomic.h"
#include "base/bell.h"
#include "base/status.h"

namespace heddle {

class Holder {
 public:
  virtual ~Holder() = default;
  // What is held back is sent: now, or by a thread that is about to.
  virtual void send() = 0;
};

class HeldBack {
 public:
  // At most once, and before the first hold(). The bell rings when something is held back: nobody may ask.
  void held_by(std::weak_ptr<Holder> holder, Ref<Bell> bell) {
    holder_ = std::move(holder);
    rings_ = std::move(bell);
  }
  void hold(uint64_t value) {  // 0: what was held back is about to be sent
    value_.store_relaxed(value);
    seam::did("held_back.hold", value != 0);
    if (value != 0) rings_->ring();
  }
  bool holds_back() const { return rings_ != nullptr && value_.load_relaxed() != 0; }
  void want(uint64_t value) const {
    if (rings_ == nullptr) [[likely]]
      return;
    const uint64_t held = value_.load_relaxed();
    if (held == 0 || held > value) return;
    if (const Ref<Holder> holder = holder_.lock()) holder->send();
  }

 private:
  // 0: none is held back. It orders nothing: who has learnt of a value finds it, or a later one, here.
  Atomic<uint64_t> value_{0};
  std::weak_ptr<Holder> holder_;
  Ref<Bell> rings_;  // null: nothing is ever held back
};

}  // namespace heddle
