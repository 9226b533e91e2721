#include "drivers/host/tuning/tuning_file.h"

#include <optional>
#include <sstream>

namespace heddle::host {
namespace {

constexpr int64_t kMostOfWay = 1 << 20;

std::string line_of(const TuningKey& key, const Way& way) {
  return text("product ", key.rows, ' ', key.k, ' ', key.n, key.bf16 ? " bf16" : " f32",
              key.rows_only ? " rows " : " any ", key.cores, " : ", way.block, ' ', way.parts, ' ',
              way.panels);
}

std::optional<std::pair<TuningKey, Way>> parse_line(const std::string& line) {
  std::istringstream in(line);
  std::string product, precision, cut, colon, rest;
  TuningKey key{};
  Way way;
  in >> product >> key.rows >> key.k >> key.n >> precision >> cut >> key.cores >> colon >> way.block >>
      way.parts >> way.panels;
  if (!in || in >> rest || product != "product" || colon != ":") return std::nullopt;
  if ((precision != "bf16" && precision != "f32") || (cut != "rows" && cut != "any")) return std::nullopt;
  key.bf16 = precision == "bf16";
  key.rows_only = cut == "rows";
  const auto fits = [](int64_t number, int64_t least) { return number >= least && number <= kMostOfWay; };
  if (!fits(way.block, 0) || !fits(way.parts, 1) || !fits(way.panels, 1)) return std::nullopt;
  return std::pair(key, way);
}

Result<Decisions> decisions_of(const Lines& lines) {
  Decisions decisions;
  for (const std::string& line : lines) {
    const auto parsed = parse_line(line);
    if (!parsed) return Status::invalid("it has the line '", line, "'");
    decisions.insert(*parsed);
  }
  return decisions;
}

}  // namespace

TuningFile::TuningFile(std::string folder, std::string identity)
    : file_(std::move(folder), "products", "heddle products 1", std::move(identity)) {}

Result<Decisions> TuningFile::read() const {
  HEDDLE_TRY_ASSIGN(const Lines lines, file_.read());
  Result<Decisions> decisions = decisions_of(lines);
  if (!decisions.ok()) return decisions.status().with_context(text("'", path(), "'"));
  return decisions;
}

Status TuningFile::merge(Decisions& mine) const {
  Decisions all;
  HEDDLE_TRY(file_.rewrite([&](const Lines& lines) {
    if (Result<Decisions> theirs = decisions_of(lines); theirs.ok()) all = *std::move(theirs);
    all.insert(mine.begin(), mine.end());  // what is there stays
    Lines made;
    for (const auto& [key, way] : all) made.push_back(line_of(key, way));
    return made;
  }));
  mine = std::move(all);
  return {};
}

}  // namespace heddle::host
