#include "batch/requests/waiting_list.h"

namespace heddle::batch {

Status WaitingList::takes(int64_t rows) {
  if (rows < 1 || rows > kRowsMost)
    return Status::invalid("the request has ", rows, " rows; it must have 1 to ", kRowsMost);
  return {};
}

uint32_t WaitingList::new_cell() {
  if (free_.empty()) {
    cells_.emplace_back();
    return static_cast<uint32_t>(cells_.size() - 1);
  }
  const uint32_t at = free_.back();
  free_.pop_back();
  return at;
}

RequestId WaitingList::add(const Waiting& request, void* payload) {
  const uint32_t at = new_cell();
  Cell& cell = cells_[at];
  cell.item = {request, payload};
  cell.item.request.id = ++made_ * kMost + at;
  cell.line = lines_.try_emplace({request.group, request.priority}).first;
  Line& line = cell.line->second;
  cell.before = line.last;
  cell.after = kNone;
  (line.last == kNone ? line.first : cells_[line.last].after) = at;
  line.last = at;
  if (request.deadline != TimePoint::max()) deadlines_.emplace(request.deadline, cell.item.request.id);
  ++size_;
  rows_ += request.rows;
  return cell.item.request.id;
}

const WaitingList::Item* WaitingList::find(RequestId id) const {
  const uint32_t at = cell_of(id);
  if (at >= cells_.size() || cells_[at].item.request.id != id || id == 0) return nullptr;
  return &cells_[at].item;
}

void WaitingList::unlink(Cell& cell) {
  Line& line = cell.line->second;
  (cell.before == kNone ? line.first : cells_[cell.before].after) = cell.after;
  (cell.after == kNone ? line.last : cells_[cell.after].before) = cell.before;
  if (line.first == kNone && lines_.size() > kEmptyLines) lines_.erase(cell.line);
}

WaitingList::Item WaitingList::remove(RequestId id) {
  const uint32_t at = cell_of(id);
  Cell& cell = cells_[at];
  unlink(cell);
  const Item item = std::exchange(cell.item, Item{});
  if (item.request.deadline != TimePoint::max()) deadlines_.erase({item.request.deadline, id});
  free_.push_back(at);
  --size_;
  rows_ -= item.request.rows;
  return item;
}

std::vector<void*> WaitingList::remove_all() {
  std::vector<void*> payloads;
  payloads.reserve(size_);
  for (const Cell& cell : cells_) {
    if (cell.item.request.id != 0) payloads.push_back(cell.item.payload);
  }
  cells_.clear();
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
    for (uint32_t at = line.first; at != kNone && rows < max_rows; at = cells_[at].after) {
      const Waiting& request = cells_[at].item.request;
      if (request.deadline <= now) continue;  // listed below
      rows += request.rows;
      offered_.push_back(request);
    }
  }
  for (const auto& [deadline, id] : deadlines_) {
    if (deadline > now) break;
    offered_.push_back(cells_[cell_of(id)].item.request);
  }
  return offered_;
}

}  // namespace heddle::batch
