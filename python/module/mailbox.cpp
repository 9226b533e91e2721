#include "mailbox.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace heddle::python {

Mailbox::~Mailbox() {
  for (std::unique_ptr<Letter> each(latest_.exchange(nullptr, std::memory_order_acquire)); each != nullptr;)
    each.reset(each->before);
  ::close(read_end_);
  ::close(write_end_);
}

void Mailbox::put(std::unique_ptr<Letter> letter) {
  Letter* before = latest_.load(std::memory_order_relaxed);
  do letter->before = before;
  // release: who takes it sees what it says
  while (!latest_.compare_exchange_weak(before, letter.get(), std::memory_order_release,
                                        std::memory_order_relaxed));
  static_cast<void>(letter.release());  // the loop may have it already
  if (before == nullptr) static_cast<void>(::write(write_end_, "", 1) == 1);
}

Letters Mailbox::take() {
  // Read first: whoever finds the mailbox empty after the exchange writes after the read.
  std::array<char, 16> bytes;
  static_cast<void>(::read(read_end_, bytes.data(), bytes.size()) > 0);
  Letters letters;
  for (Letter* each = latest_.exchange(nullptr, std::memory_order_acq_rel); each != nullptr;
       each = each->before)
    letters.emplace_back(each);
  std::reverse(letters.begin(), letters.end());
  return letters;
}

}  // namespace heddle::python
