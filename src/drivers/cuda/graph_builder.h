// graph_builder.h: an executable graph in the making. Its nodes stand in a line, as steps do in a stream.
//
//   What       A kernel of ours is an explicit node. A call of a library cannot be one: it is captured alone,
//              in a stream that nobody else knows, and is a child graph.
//   Captures   One lasts for as long as a library takes to enqueue its kernels, some 10 us. If another thread
//              calls cudaDeviceSynchronize() meanwhile, CUDA fails that call, in every mode of capture, and
//              ends the capture: then there is no graph.
//   Threads    A local variable of one. The device's context is current while it lives.
#pragma once

#include "drivers/cuda/program.h"

namespace heddle::cuda {

class GraphBuilder final : public StepTaker {
 public:
  explicit GraphBuilder(const OpenDevice& device) : device_(device) {}
  ~GraphBuilder() override;
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  Status begin();
  Status launch(const Launch& launch, std::byte* params) override;
  Result<bool> call(const LibraryCall& call, const std::byte* operands) override;
  Result<GraphExec> finish();

 private:
  Result<GraphHandle> captured(const LibraryCall& call, const std::byte* operands);
  size_t before() const { return last_ == nullptr ? 0 : 1; }

  const OpenDevice& device_;
  GraphHandle graph_ = nullptr;
  GraphNode last_ = nullptr;
  StreamHandle stream_ = nullptr;  // of captures; null: there was none yet
};

}  // namespace heddle::cuda
