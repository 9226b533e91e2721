#include "drivers/host/machine/shared_loop.h"

namespace heddle::host {
namespace {

constexpr uint32_t kRenewedAfter = uint32_t{1} << 20;  // numbers

uint32_t loop_of(uint64_t claim) { return static_cast<uint32_t>(claim >> 32); }
uint64_t claim_of(uint32_t loop, int next) { return uint64_t{loop} << 32 | static_cast<uint32_t>(next); }
bool is_newer(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

int first_of(const SharedLoop::Opened& opened, int64_t place) {
  return static_cast<int>(place * opened.chunks / opened.places);
}

}  // namespace

SharedLoop::SharedLoop(int most_places, uint32_t first_number) : claims_(static_cast<size_t>(most_places)) {
  opened_.store_relaxed(encoded({first_number, 0, 0}));
}

// No thread claims meanwhile: of the loops until now everything is taken.
void SharedLoop::renew_claims(uint32_t number) {
  for (Claim& claim : claims_) claim.word.store_relaxed(claim_of(number, 0));
}

SharedLoop::Opened SharedLoop::open(Body body, void* context, int chunks, int places) {
  body_.store_relaxed(body);
  context_.store_relaxed(context);
  const Opened opened{decoded(opened_.load_relaxed()).number + 1, chunks, places};
  if (opened.number % kRenewedAfter == 1) renew_claims(opened.number - 2);
  opened_.store_seq_cst(encoded(opened));
  return opened;
}

void SharedLoop::close() {
  Opened opened = decoded(opened_.load_relaxed());
  ++opened.number;
  opened_.store_release(encoded(opened));
}

bool SharedLoop::take(const Opened& opened, int place, Chunk& chunk) {
  for (int tried = 0; tried < opened.places; ++tried) {
    const int from = (place + tried) % opened.places;
    const int first = first_of(opened, from), end = first_of(opened, from + 1);
    Atomic<uint64_t>& claim = claims_[static_cast<size_t>(from)].word;
    uint64_t word = claim.load_acquire();
    for (;;) {
      const uint32_t loop = loop_of(word);
      if (is_newer(loop, opened.number)) return false;
      const int next = loop == opened.number ? static_cast<int>(static_cast<uint32_t>(word)) : first;
      if (next == end) break;
      chunk = {body_.load_relaxed(), context_.load_relaxed(), next};
      if (claim.cas_weak_acq_rel(word, claim_of(opened.number, next + 1))) return true;
    }
  }
  return false;
}

}  // namespace heddle::host
