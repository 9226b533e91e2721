#include "drivers/cuda/libraries/algorithm_store.h"

namespace heddle::cuda {
namespace {

constexpr const char* kBetween = " : ";

}  // namespace

// Nothing where a line is none of ours.
std::optional<AlgorithmStore::Choices> AlgorithmStore::choices_of(const Lines& lines) {
  Choices choices;
  for (const std::string& line : lines) {
    const size_t end = line.find(kBetween);
    if (end == std::string::npos) return std::nullopt;
    choices.emplace(line.substr(0, end), line.substr(end + std::string_view(kBetween).size()));
  }
  return choices;
}

AlgorithmStore::AlgorithmStore(const LibraryTuning& tuning, std::string_view library, std::string identity)
    : library_(library),
      warn_(tuning.warn),
      file_(tuning.folder.empty()
                ? std::nullopt
                : std::optional<KeptLines>(std::in_place, tuning.folder, library_,
                                           text("heddle ", library_, " 1"), std::move(identity))) {
  if (!file_.has_value()) {
    said_ = "measured, not kept: there is no folder for them";
    return;
  }
  const Result<Lines> lines = file_->read();
  std::optional<Choices> known = lines.ok() ? choices_of(*lines) : std::nullopt;
  if (!known.has_value()) {
    const std::string why = lines.ok() ? text("'", file_->path(), "': a line of it is no choice")
                                       : std::string(lines.status().message());
    said_ = text("measured anew: ", why);
    warn_(text("kept choices of algorithms of ", library_, " are not used and will be measured anew: ", why));
    return;
  }
  said_ = text("kept in ", file_->path(), ": ", known->size());
  *choices_.lock() = *std::move(known);
}

std::string AlgorithmStore::describe() const { return said_; }

std::optional<std::string> AlgorithmStore::find(const std::string& problem) const {
  const auto choices = choices_.lock();
  const auto found = choices->find(problem);
  if (found == choices->end()) return std::nullopt;
  return found->second;
}

std::string AlgorithmStore::keep(const std::string& problem, const std::string& chosen, bool refused) {
  Choices all = *choices_.lock();
  all.insert_or_assign(problem, chosen);
  if (file_.has_value() && !unwritable_.load_acquire()) {
    const Status written = file_->rewrite([&](const Lines& lines) {
      Choices theirs = choices_of(lines).value_or(Choices());
      if (refused) theirs.erase(problem);
      theirs.insert(all.begin(), all.end());
      all = std::move(theirs);
      Lines made;
      for (const auto& [each, algorithm] : all) made.push_back(text(each, kBetween, algorithm));
      return made;
    });
    // Where another process kept the lock, the next choice takes this one along.
    if (!written.ok() && written.code() != heddle::Code::unavailable && !unwritable_.exchange_acq_rel(true))
      warn_(text("choices of algorithms of ", library_,
                 " are kept for this process only: ", written.message()));
  }
  const std::string holds = all.at(problem);
  choices_.lock()->insert(all.begin(), all.end());
  choices_.lock()->insert_or_assign(problem, holds);
  return holds;
}

}  // namespace heddle::cuda
