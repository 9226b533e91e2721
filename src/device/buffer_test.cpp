#include "device/buffer.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>

#include "device/completing_queue_fixture.h"
#include "device/row_faults.h"
#include "device/view.h"

namespace heddle::device {
namespace {

class StaticMemory final : public Memory {
 public:
  StaticMemory()
      : Memory({nullptr, MemoryKind::device, bytes_, reinterpret_cast<uintptr_t>(bytes_), sizeof bytes_}) {}

 private:
  alignas(64) std::byte bytes_[64] = {};
};

class CountingRecycler final : public Recycler {
 public:
  void recycle(std::unique_ptr<Memory> memory, std::vector<Point> uses) noexcept override {
    memories.push_back(std::move(memory));
    last_uses = std::move(uses);
  }
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<Point> last_uses;
};

Ref<Buffer> make_buffer(Ref<Recycler> recycler = nullptr) {
  return std::make_shared<Buffer>(std::make_unique<StaticMemory>(), 64, std::move(recycler));
}

std::vector<Point> waits_of(const Buffer& buffer, bool write, const Queue& own) {
  std::vector<Point> waits;
  buffer.collect_waits(write, own.timeline().get(), waits);
  return waits;
}

TEST_CASE("a read waits for the last write, a write also for the reads since") {
  CompletingQueue writer, first_reader, second_reader, other;
  const Ref<Buffer> buffer = make_buffer();
  buffer->mark_write(writer.point(5));
  CHECK(waits_of(*buffer, false, other).size() == 1);
  buffer->mark_read(first_reader.point(1));
  buffer->mark_read(second_reader.point(2));
  buffer->mark_read(first_reader.point(4));
  CHECK(waits_of(*buffer, false, other).size() == 1);
  const std::vector<Point> waits = waits_of(*buffer, true, other);
  REQUIRE(waits.size() == 3);
  CHECK(waits[0].value == 5);
  CHECK(waits[1].value == 4);
  CHECK(waits[2].value == 2);
}

TEST_CASE("a queue waits neither for itself nor for what is over") {
  CompletingQueue writer, reader;
  const Ref<Buffer> buffer = make_buffer();
  buffer->mark_write(writer.point(1));
  CHECK(waits_of(*buffer, true, writer).empty());
  CHECK(waits_of(*buffer, false, reader).size() == 1);
  writer.advance(1);
  CHECK(waits_of(*buffer, false, reader).empty());
  CHECK(buffer->pending().empty());
}

TEST_CASE("a write forgets the reads that it waited for") {
  CompletingQueue writer, reader, other;
  const Ref<Buffer> buffer = make_buffer();
  buffer->mark_read(reader.point(3));
  buffer->mark_write(writer.point(1));
  const std::vector<Point> waits = waits_of(*buffer, true, other);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].timeline == writer.timeline());
}

TEST_CASE("a write beside what is in use forgets no use, and readers wait for it and the writes before") {
  CompletingQueue writer, reader, beside, other;
  const Ref<Buffer> buffer = make_buffer();
  const auto fault = std::make_shared<RowFaults>(0);
  buffer->mark_write(writer.point(1), fault);
  buffer->mark_read(reader.point(3));
  buffer->mark_write_beside(beside.point(2));
  CHECK(waits_of(*buffer, true, other).size() == 3);
  CHECK(buffer->writer() == fault);
  CHECK(waits_of(*buffer, false, other).size() == 2);
  CHECK(waits_of(*buffer, false, writer).size() == 1);
  CHECK(buffer->pending().size() == 3);
  writer.advance(1);
  const std::vector<Point> waits = waits_of(*buffer, false, other);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].timeline == beside.timeline());
  buffer->mark_write_beside(beside.point(4));
  CHECK(waits_of(*buffer, true, other).size() == 2);
  buffer->mark_write(other.point(1));
  CHECK(buffer->pending().size() == 1);
}

TEST_CASE("waits of several buffers on one timeline are joined to the latest") {
  CompletingQueue writer, other;
  const Ref<Buffer> a = make_buffer(), b = make_buffer();
  a->mark_write(writer.point(7));
  b->mark_write(writer.point(3));
  std::vector<Point> waits;
  a->collect_waits(false, other.timeline().get(), waits);
  b->collect_waits(false, other.timeline().get(), waits);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].value == 7);
}

TEST_CASE("the last reference gives the memory back with all writes that stood beside each other") {
  CompletingQueue first, second, third, reader;
  const auto recycler = std::make_shared<CountingRecycler>();
  Ref<Buffer> buffer = make_buffer(recycler);
  buffer->mark_write(first.point(1));
  buffer->mark_write_beside(second.point(1));
  buffer->mark_write_beside(third.point(1));
  CHECK(waits_of(*buffer, false, reader).size() == 3);
  buffer->mark_read(reader.point(1));
  buffer.reset();
  CHECK(recycler->last_uses.size() == 4);
}

TEST_CASE("the last reference gives the memory back with the uses that are not over") {
  CompletingQueue writer, reader, finished;
  const auto recycler = std::make_shared<CountingRecycler>();
  Ref<Buffer> buffer = make_buffer(recycler);
  buffer->mark_write(writer.point(2));
  buffer->mark_read(reader.point(1));
  buffer->mark_read(finished.point(1));
  finished.advance(1);
  Ref<Buffer> in_flight = buffer;
  buffer.reset();
  CHECK(recycler->memories.empty());
  in_flight.reset();
  CHECK(recycler->memories.size() == 1);
  CHECK(recycler->last_uses.size() == 2);
}

}  // namespace
}  // namespace heddle::device
