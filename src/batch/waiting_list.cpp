#include "batch/waiting_list.h"

namespace heddle::batch {

uint32_t WaitingList::new_place() {
  if (free_.empty()) {
    places_.emplace_back();
    return static_cast<uint32_t>(places_.size() - 1);
  }
  const uint32_t at = free_.back();
  free_.pop_back();
  return at;
}

RequestId WaitingList::add(const Waiting& request, void* payload) {
  const uint32_t at = new_place();
  Place& place = places_[at];
  place.item = {request, payload};
  place.item.request.id = ++made_ * kMost + at;
  place.line = lines_.try_emplace({request.group, request.priority}).first;
  Line& line = place.line->second;
  place.before = line.last;
  place.after = kNone;
  (line.last == kNone ? line.first : places_[line.last].after) = at;
  line.last = at;
  if (request.deadline != TimePoint::max()) deadlines_.emplace(request.deadline, place.item.request.id);
  ++size_;
  rows_ += request.rows;
  return place.item.request.id;
}

const WaitingList::Item* WaitingList::find(RequestId id) const {
  const uint32_t at = place_of(id);
  if (at >= places_.size() || places_[at].item.request.id != id || id == 0) return nullptr;
  return &places_[at].item;
}

void WaitingList::unlink(Place& place) {
  Line& line = place.line->second;
  (place.before == kNone ? line.first : places_[place.before].after) = place.after;
  (place.after == kNone ? line.last : places_[place.after].before) = place.before;
  if (line.first == kNone && lines_.size() > kEmptyLines) lines_.erase(place.line);
}

WaitingList::Item WaitingList::remove(RequestId id) {
  const uint32_t at = place_of(id);
  Place& place = places_[at];
  unlink(place);
  const Item item = std::exchange(place.item, Item{});
  if (item.request.deadline != TimePoint::max()) deadlines_.erase({item.request.deadline, id});
  free_.push_back(at);
  --size_;
  rows_ -= item.request.rows;
  return item;
}

std::vector<void*> WaitingList::remove_all() {
  std::vector<void*> payloads;
  payloads.reserve(size_);
  for (const Place& place : places_) {
    if (place.item.request.id != 0) payloads.push_back(place.item.payload);
  }
  places_.clear();
  free_.clear();
  lines_.clear();
  deadlines_.clear();
  size_ = 0;
  rows_ = 0;
  return payloads;
}

std::span<const Waiting> WaitingList::offer(TimePoint now, int64_t max_rows) {
  offered_.clear();
  for (const auto& [key, line] : lines_) {
    int64_t rows = 0;
    for (uint32_t at = line.first; at != kNone && rows < max_rows; at = places_[at].after) {
      const Waiting& request = places_[at].item.request;
      if (request.deadline <= now) continue;  // listed below
      rows += request.rows;
      offered_.push_back(request);
    }
  }
  for (const auto& [deadline, id] : deadlines_) {
    if (deadline > now) break;
    offered_.push_back(places_[place_of(id)].item.request);
  }
  return offered_;
}

}  // namespace heddle::batch
