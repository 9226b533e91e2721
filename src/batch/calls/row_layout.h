// row_layout.h: how calls lie in a batch: whose row is where, how ragged rows are padded and cut back.
//
//   What       A row is index i along axis 0 of every input and output of a model proven batchable. Calls
//              whose rows have the same shape share a batch; along a ragged axis they may differ and are
//              padded.
//   Staging    A row occupies the bucket of its length, and shares batches with others of that bucket. Before
//              a batch runs, its rows are moved together to the length of the longest: what is between that
//              and the bucket costs no computation.
//   Cut back   Every output axis that has the symbol of a ragged input axis gets the caller's own length.
//   Threads    Immutable after make(); any thread. write_rows() and read_rows() touch disjoint rows.
//   Lifetime   A value; keeps nothing.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/program.h"
#include "device/view.h"
#include "ir/tensor.h"

namespace heddle::batch {

struct RaggedInput {
  std::string input;
  size_t axis = 1;
  double pad = 0;
};

struct CallShape {
  int64_t rows = 0;
  std::vector<ir::Extents>
      row_extents;               // per input: one row's extents, ragged axes rounded up to their bucket
  std::vector<int64_t> lengths;  // per ragged symbol: the call's own

  bool is_empty() const { return rows == 0 || std::find(lengths.begin(), lengths.end(), 0) != lengths.end(); }
};

// One call's rows in a batch whose rows lie as `row`, from its row `first` on; what `from` does not cover of
// them becomes `pad`, one element.
void write_rows(const device::View& from, const ir::Extents& row, const std::byte* pad, int64_t first,
                std::byte* batch);
// The copy of a batch's rows from `first` on, as many as `part` has and of its extents.
void read_rows(const device::View& batch, int64_t first, const device::View& part);

inline bool same_rows(std::span<const ir::Extents> a, std::span<const ir::Extents> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

class RowLayout {
 public:
  // `exact`: rows share a batch only with rows of their own length, so nothing is padded.
  // invalid: an input or axis that does not exist, is axis 0 or has a fixed extent.
  static Result<RowLayout> make(const std::vector<device::Signature>& inputs,
                                const std::vector<device::Signature>& outputs,
                                std::span<const RaggedInput> ragged, bool exact);

  // invalid when inputs disagree on the number of rows or on a ragged length, naming both.
  Result<CallShape> shape_of(std::span<const device::View> inputs) const;
  int64_t row_bytes(const CallShape& shape, size_t input) const;  // in the staging memory

  // Copies the call's contiguous rows to `staging`, row `first` on, and pads each up to its row's extents.
  void write_rows(size_t input, const CallShape& shape, const device::View& from, std::byte* staging,
                  int64_t first) const;
  // What the program reads: `rows` rows that lie as `row`, the last of them zeros, ragged axes cut to
  // `longest`. Moves the rows together. One thread, once all `written` rows are there.
  device::View batch_input(size_t input, const ir::Extents& row, const Ref<device::Buffer>& staging,
                           int64_t written, int64_t rows, std::span<const int64_t> longest) const;
  // The extents of a call's part of an output of the batch, and its copy.
  ir::Extents part_of(size_t output, int64_t mine, std::span<const int64_t> lengths,
                      const device::View& whole, int64_t rows) const;
  void read_rows(size_t output, const device::View& whole, int64_t rows, int64_t first,
                 const device::View& part) const;

  bool ragged() const { return !symbols_.empty(); }
  // For a look at what padding does: ragged axes get the next bucket() that is longer than the rows
  // themselves, which whole_input() shows. A model may take no longer ones.
  void make_room(CallShape& shape) const;
  void fit(CallShape& shape) const;  // ragged axes are as long as the rows themselves
  // The beginnings of these rows, an eighth of them along ragged axes, and one element at least.
  CallShape cut(std::vector<device::View>& inputs, const CallShape& shape) const;
  device::View whole_input(size_t input, const ir::Extents& row, const Ref<device::Buffer>& staging,
                           int64_t rows) const;
  std::string describe() const;  // "input_ids axis 1 (pad 0), ...", for people

  static int64_t bucket(int64_t length);  // the smallest of 0, 8, 12, 16, 24, 32 ... that holds it
  // On a device that rounds numbers of rows up (Traits::row_sizes) a run costs more than rows that it has too
  // many, and batches are larger: rows of 1 to 16 share one, of 17 to 32, of 33 to 64. Longer ones keep the
  // device busy.
  RowLayout on(const device::Traits& traits) &&;
  // With how many rows a batch of so many is run: on a device that rounds them up, the next of `sizes`, if
  // there is one. Ragged rows are padded as it is, and their runs are long: a batch of them gets an eighth
  // more at most, and up to 16 rows none.
  int64_t rows_to_run(std::span<const int64_t> sizes, int64_t rows) const;

 private:
  struct RowPort {
    std::string name;
    ir::DType dtype;
    std::vector<int> symbol_of_axis;  // index into symbols_, -1: not ragged
    ir::Tensor pad;                   // one element
  };
  struct Symbol {
    std::string name;
    size_t input, axis;  // where its length is read
  };
  int64_t bucket_here(int64_t length) const;
  // Sets ragged axes to what `extent` makes of the rows' own length there.
  template <class Extent>
  void set_extents(CallShape& shape, Extent&& extent) const;

  std::vector<RowPort> inputs_, outputs_;
  std::vector<Symbol> symbols_;
  bool exact_ = false, few_buckets_ = false;
};

}  // namespace heddle::batch
