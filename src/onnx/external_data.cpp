#include "onnx/external_data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "onnx/names.h"

namespace heddle::onnx {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

Result<uint64_t> number(const std::string& key, const std::string& digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return Status::invalid("external data ", key, " is ", in_quotes(digits),
                           "; it must be a number of bytes");
  }
  return value;
}

Result<Entry> parse(const proto::TensorProto& tensor) {
  Entry entry;
  for (const auto& pair : tensor.external_data()) {
    if (pair.key() == "location") {
      entry.location = pair.value();
    } else if (pair.key() == "offset") {
      HEDDLE_TRY_ASSIGN(entry.offset, number("offset", pair.value()));
    } else if (pair.key() == "length") {
      HEDDLE_TRY_ASSIGN(entry.length, number("length", pair.value()));
    }
  }
  if (entry.location.empty()) return Status::invalid("external data has no location; it must name a file");
  return entry;
}

bool lies_in(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

Status outside(const std::string& location) {
  return Status::invalid("external data location ", in_quotes(location),
                         " leads outside the model's folder; it must be a relative path to a file inside it");
}

}  // namespace

Result<Ref<const MappedFile>> ExternalData::file(const std::string& location) {
  if (folder_.empty()) {
    return Status::invalid("external data ", in_quotes(location),
                           " is refused: the model was given as bytes, without a folder");
  }
  if (const auto found = files_.find(location); found != files_.end()) return found->second;
  const fs::path relative(location);
  const bool climbs = std::find(relative.begin(), relative.end(), "..") != relative.end();
  if (relative.is_absolute() || climbs || location.find('\0') != std::string::npos) return outside(location);
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error)
    return Status::invalid("cannot open the model's folder ", in_quotes(folder_), ": ", error.message());
  const fs::path path = fs::canonical(folder / relative, error);
  if (error) {
    return Status::invalid("external data file ", in_quotes(location), " cannot be opened in ",
                           in_quotes(folder_), ": ", error.message());
  }
  if (!lies_in(folder, path)) return outside(location);
  HEDDLE_TRY_ASSIGN(auto mapped, MappedFile::open(path.string()));
  files_.emplace(location, mapped);
  return mapped;
}

Result<ExternalData::Bytes> ExternalData::find(const proto::TensorProto& tensor, uint64_t size) {
  HEDDLE_TRY_ASSIGN(const Entry entry, parse(tensor));
  if (entry.length && *entry.length != size) {
    return Status::invalid("external data length is ", *entry.length, " bytes, but the tensor has ", size);
  }
  HEDDLE_TRY_ASSIGN(auto mapped, file(entry.location));
  const uint64_t available = mapped->bytes().size();
  if (entry.offset > available || size > available - entry.offset) {
    return Status::invalid("external data file ", in_quotes(entry.location), " has ", available,
                           " bytes, but the tensor needs ", size, " from offset ", entry.offset,
                           "; the file is cut short or belongs to another model");
  }
  return Bytes{mapped->bytes().subspan(entry.offset, size), std::move(mapped)};
}

}  // namespace heddle::onnx
