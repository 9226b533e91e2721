#include "onnx/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "onnx/names.h"

namespace heddle::onnx {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<Ref<const MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a pipe of that name must not hold the caller until someone writes.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return Status::invalid("cannot open ", in_quotes(path), ": ", reason(errno));
  struct stat info{};
  if (::fstat(file.fd, &info) != 0)
    return Status::invalid("cannot read ", in_quotes(path), ": ", reason(errno));
  if (!S_ISREG(info.st_mode)) return Status::invalid(in_quotes(path), " is not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return Ref<const MappedFile>(new MappedFile({}));
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (start == MAP_FAILED) {
    const int error = errno;
    if (error == ENOMEM)
      return Status::exhausted("cannot map ", size, " bytes of ", in_quotes(path), ": ", reason(error));
    return Status::invalid("cannot map ", in_quotes(path), ": ", reason(error));
  }
  return Ref<const MappedFile>(new MappedFile({static_cast<const std::byte*>(start), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace heddle::onnx
