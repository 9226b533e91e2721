#include "mailbox.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace heddle::python {
namespace {

Letter closed_mark;
Letter* closed() { return &closed_mark; }

Letters in_order(Letter* latest) {
  Letters letters;
  for (Letter* each = latest; each != nullptr; each = each->before) letters.emplace_back(each);
  std::reverse(letters.begin(), letters.end());
  return letters;
}

}  // namespace

Mailbox::~Mailbox() {
  close();
  ::close(read_end_);
  ::close(write_end_);
}

void Mailbox::put(std::unique_ptr<Letter> letter) {
  Letter* before = latest_.load(std::memory_order_relaxed);
  do {
    if (before == closed()) return;
    letter->before = before;
    // release: who takes it sees what it says
  } while (!latest_.compare_exchange_weak(before, letter.get(), std::memory_order_release,
                                          std::memory_order_relaxed));
  static_cast<void>(letter.release());
  // A pipe that is too full to take it is readable already.
  if (before == nullptr) static_cast<void>(::write(write_end_, "", 1) == 1);
}

Letters Mailbox::take() {
  // Read first: whoever finds the mailbox empty from the exchange on writes after this.
  std::array<char, 16> bytes;
  static_cast<void>(::read(read_end_, bytes.data(), bytes.size()) > 0);
  return in_order(latest_.exchange(nullptr, std::memory_order_acq_rel));
}

void Mailbox::close() {
  Letter* const latest = latest_.exchange(closed(), std::memory_order_acq_rel);
  if (latest != closed()) static_cast<void>(in_order(latest));
}

}  // namespace heddle::python
