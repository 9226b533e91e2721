#include "batch/calls/row_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace heddle::batch {

using device::View;

namespace {

// A contiguous block of `extents`, walked along all axes but those from `inner` on.
struct Box {
  ir::Extents extents;
  std::span<const int64_t> from_strides, to_strides;  // in elements
  size_t element;
};

// Copies the box axis by axis, in order; the axes that are dense on both sides go as one block, which may
// overlap where it goes.
void copy_box(const Box& box, size_t axis, const std::byte* from, std::byte* to) {
  int64_t dense = 1;
  size_t inner = box.extents.rank();
  const auto is_dense = [&](size_t i) {
    return box.extents[i] == 1 || (box.from_strides[i] == dense && box.to_strides[i] == dense);
  };
  while (inner > axis && is_dense(inner - 1)) dense *= box.extents[--inner];
  if (inner == axis) {
    std::memmove(to, from, static_cast<size_t>(dense) * box.element);
    return;
  }
  const auto size = static_cast<int64_t>(box.element);
  for (int64_t i = 0; i < box.extents[axis]; ++i) {
    copy_box(box, axis + 1, from + i * box.from_strides[axis] * size, to + i * box.to_strides[axis] * size);
  }
}

void copy(const ir::Extents& extents, const ir::Extents& from_strides, const ir::Extents& to_strides,
          ir::DType dtype, const std::byte* from, std::byte* to) {
  if (extents.elements() == 0) return;
  copy_box({extents, from_strides.span(), to_strides.span(), static_cast<size_t>(ir::size_of(dtype))}, 0,
           from, to);
}

ir::Extents with_rows(int64_t rows, const ir::Extents& row) {
  ir::Extents out{rows};
  for (const int64_t extent : row) out.push_back(extent);
  return out;
}

}  // namespace

void write_rows(const View& from, const ir::Extents& row, const std::byte* pad, int64_t first,
                std::byte* batch) {
  const auto size = static_cast<size_t>(ir::size_of(from.dtype));
  std::byte* const to = batch + static_cast<size_t>(first * row.elements()) * size;
  const ir::Extents whole = with_rows(from.extents[0], row);
  if (whole != from.extents) {  // padded first: what is longer than the rows themselves stays
    for (int64_t i = 0; i < whole.elements(); ++i) std::memcpy(to + static_cast<size_t>(i) * size, pad, size);
  }
  copy(from.extents, from.strides, device::contiguous_strides(whole), from.dtype, from.host(), to);
}

void read_rows(const View& batch, int64_t first, const View& part) {
  const int64_t skipped = first * batch.strides[0] * ir::size_of(batch.dtype);
  copy(part.extents, batch.strides, part.strides, batch.dtype, batch.host() + skipped, part.host());
}

int64_t RowLayout::bucket(int64_t length) {
  if (length == 0) return 0;  // padded it would be a row, and no longer what the model makes of nothing
  int64_t step = 8;
  while (step < length) {
    if (step + step / 2 >= length) return step + step / 2;
    step *= 2;
  }
  return step;
}

int64_t RowLayout::bucket_here(int64_t length) const {
  constexpr uint64_t kShortest = 16;
  constexpr int64_t kLongest = 64;
  if (!few_buckets_ || length == 0 || length > kLongest) return bucket(length);
  return static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(length), kShortest)));
}

RowLayout RowLayout::on(const device::Traits& traits) && {
  few_buckets_ = !traits.row_sizes.empty();
  return std::move(*this);
}

int64_t RowLayout::rows_to_run(std::span<const int64_t> sizes, int64_t rows) const {
  if (ragged() && !sizes.empty() && rows <= sizes.back()) {
    constexpr int64_t kSteps = 16;
    const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
    const int64_t step = std::max<int64_t>(1, power / kSteps);
    return std::min((rows + step - 1) / step * step, sizes.back());  // more rows never get fewer
  }
  const auto next = std::lower_bound(sizes.begin(), sizes.end(), rows);
  return next == sizes.end() ? rows : *next;
}

Result<RowLayout> RowLayout::make(const std::vector<device::Signature>& inputs,
                                  const std::vector<device::Signature>& outputs,
                                  std::span<const RaggedInput> ragged, bool exact) {
  RowLayout layout;
  layout.exact_ = exact;
  for (const device::Signature& s : inputs)
    layout.inputs_.push_back(
        {s.name, s.type.dtype, std::vector<int>(s.type.rank(), -1), ir::Tensor::scalar(s.type.dtype, 0)});
  for (const device::Signature& s : outputs)
    layout.outputs_.push_back(
        {s.name, s.type.dtype, std::vector<int>(s.type.rank(), -1), ir::Tensor::scalar(s.type.dtype, 0)});
  for (const RaggedInput& each : ragged) {
    const auto found = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const device::Signature& s) { return s.name == each.input; });
    if (found == inputs.end())
      return Status::invalid("ragged names input '", each.input, "'; the model has none of that name");
    const ir::Shape& shape = found->type.shape;
    if (each.axis == 0 || each.axis >= shape.size() || shape[each.axis].is_static()) {
      return Status::invalid(
          "axis ", each.axis, " of input '", each.input, "', ", ir::to_string(found->type),
          ", cannot be ragged: it has to be one of the axes from 1 on whose extent is a symbol");
    }
    const std::string name = to_string(shape[each.axis]);
    const auto input = static_cast<size_t>(found - inputs.begin());
    auto known = std::find_if(layout.symbols_.begin(), layout.symbols_.end(),
                              [&](const Symbol& s) { return s.name == name; });
    if (known == layout.symbols_.end() && !layout.symbols_.empty()) {
      return Status::unsupported("rows are ragged along '", layout.symbols_[0].name, "' and along '", name,
                                 "'; one length is possible, and what has another must be of equal shape");
    }
    if (known == layout.symbols_.end()) known = layout.symbols_.insert(known, {name, input, each.axis});
    layout.inputs_[input].symbol_of_axis[each.axis] = static_cast<int>(known - layout.symbols_.begin());
    layout.inputs_[input].pad = ir::Tensor::scalar(found->type.dtype, each.pad);
  }
  for (size_t k = 0; k < layout.symbols_.size(); ++k) {
    const std::string& name = layout.symbols_[k].name;
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t axis = 1; axis < inputs[i].type.rank(); ++axis) {
        if (to_string(inputs[i].type.shape[axis]) != name || layout.inputs_[i].symbol_of_axis[axis] >= 0)
          continue;
        return Status::invalid("axis ", axis, " of input '", inputs[i].name, "' has the length '", name,
                               "' too: declare it ragged with its pad value as well");
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (size_t axis = 0; axis < outputs[i].type.rank(); ++axis) {
        const ir::Dim& dim = outputs[i].type.shape[axis];
        if (axis > 0 && to_string(dim) == name) {
          layout.outputs_[i].symbol_of_axis[axis] = static_cast<int>(k);
        } else if (dim.mentions(name)) {
          return Status::unsupported("axis ", axis, " of output '", outputs[i].name, "' is ", to_string(dim),
                                     " long: only outputs as long as the ragged axis '", name,
                                     "' itself can be cut back");
        }
      }
    }
  }
  return layout;
}

Result<CallShape> RowLayout::shape_of(std::span<const View> inputs) const {
  CallShape shape;
  shape.rows = inputs[0].extents[0];
  for (const Symbol& symbol : symbols_) shape.lengths.push_back(inputs[symbol.input].extents[symbol.axis]);
  shape.row_extents.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Extents& extents = inputs[i].extents;
    if (extents[0] != shape.rows) {
      return Status::invalid("input '", inputs_[0].name, "' has ", shape.rows, " rows and input '",
                             inputs_[i].name, "' ", extents[0], "; all inputs must have as many");
    }
    ir::Extents row;
    for (size_t axis = 1; axis < extents.rank(); ++axis) {
      const int symbol = inputs_[i].symbol_of_axis[axis];
      if (symbol < 0) {
        row.push_back(extents[axis]);
        continue;
      }
      const Symbol& read = symbols_[static_cast<size_t>(symbol)];
      if (extents[axis] != shape.lengths[static_cast<size_t>(symbol)]) {
        return Status::invalid("input '", inputs_[i].name, "' is ", extents[axis], " long along axis ", axis,
                               " and input '", inputs_[read.input].name, "' ",
                               shape.lengths[static_cast<size_t>(symbol)], " along axis ", read.axis,
                               "; both are '", read.name, "' and must be equal");
      }
      row.push_back(exact_ ? extents[axis] : bucket_here(extents[axis]));
    }
    shape.row_extents.push_back(row);
  }
  return shape;
}

int64_t RowLayout::row_bytes(const CallShape& shape, size_t input) const {
  return shape.row_extents[input].elements() * ir::size_of(inputs_[input].dtype);
}

void RowLayout::write_rows(size_t input, const CallShape& shape, const View& from, std::byte* staging,
                           int64_t first) const {
  batch::write_rows(from, shape.row_extents[input], static_cast<const std::byte*>(inputs_[input].pad.data()),
                    first, staging);
}

View RowLayout::batch_input(size_t input, const ir::Extents& row, const Ref<device::Buffer>& staging,
                            int64_t written, int64_t rows, std::span<const int64_t> longest) const {
  const RowPort& port = inputs_[input];
  const ir::Extents bucket = with_rows(written, row);
  View view = View::contiguous(staging, port.dtype, bucket);
  for (size_t axis = 1; axis < view.extents.rank(); ++axis) {
    const int symbol = port.symbol_of_axis[axis];
    if (symbol >= 0) view.extents[axis] = longest[static_cast<size_t>(symbol)];
  }
  const ir::Extents apart = view.strides;
  view.strides = device::contiguous_strides(view.extents);
  // In order, and never to a later place: no element is overwritten before it was moved.
  if (view.extents != bucket) copy(view.extents, apart, view.strides, port.dtype, view.host(), view.host());
  const auto used = static_cast<size_t>(view.bytes());
  view.extents[0] = rows;
  std::memset(view.host() + used, 0, static_cast<size_t>(view.bytes()) - used);
  return view;
}

View RowLayout::whole_input(size_t input, const ir::Extents& row, const Ref<device::Buffer>& staging,
                            int64_t rows) const {
  return View::contiguous(staging, inputs_[input].dtype, with_rows(rows, row));
}

template <class Extent>
void RowLayout::set_extents(CallShape& shape, Extent&& extent) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (size_t axis = 1; axis < inputs_[i].symbol_of_axis.size(); ++axis) {
      const int symbol = inputs_[i].symbol_of_axis[axis];
      if (symbol >= 0) shape.row_extents[i][axis - 1] = extent(shape.lengths[static_cast<size_t>(symbol)]);
    }
  }
}

void RowLayout::make_room(CallShape& shape) const {
  set_extents(shape, [](int64_t length) { return bucket(length + 1); });
}

void RowLayout::fit(CallShape& shape) const {
  set_extents(shape, [](int64_t length) { return length; });
}

CallShape RowLayout::cut(std::vector<View>& inputs, const CallShape& shape) const {
  CallShape begins = shape;
  for (int64_t& length : begins.lengths) length = std::max(length / 8, std::min<int64_t>(length, 1));
  fit(begins);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t axis = 1; axis < inputs[i].extents.rank(); ++axis)
      inputs[i].extents[axis] = begins.row_extents[i][axis - 1];
  }
  return begins;
}

ir::Extents RowLayout::part_of(size_t output, int64_t mine, std::span<const int64_t> lengths,
                               const View& whole, int64_t rows) const {
  ir::Extents part = whole.extents;
  part[0] = whole.extents[0] / rows * mine;
  for (size_t axis = 1; axis < part.rank(); ++axis) {
    const int symbol = outputs_[output].symbol_of_axis[axis];
    if (symbol >= 0) part[axis] = lengths[static_cast<size_t>(symbol)];
  }
  return part;
}

void RowLayout::read_rows(size_t /*output*/, const View& whole, int64_t rows, int64_t first,
                          const View& part) const {
  batch::read_rows(whole, first * (whole.extents[0] / rows), part);
}

std::string RowLayout::describe() const {
  std::string all;
  for (const RowPort& port : inputs_) {
    for (size_t axis = 0; axis < port.symbol_of_axis.size(); ++axis) {
      if (port.symbol_of_axis[axis] < 0) continue;
      all += text(all.empty() ? "" : ", ", "'", port.name, "' axis ", axis, " (pad ", port.pad.get(0), ")");
    }
  }
  return all;
}

}  // namespace heddle::batch
