// graph_builder.h: an executable graph in the making. Its nodes stand in a line, as steps do in a stream.
//
//   What       A kernel of ours is an explicit node. A call of a library cannot be one: it is captured alone,
//              in a stream that nobody else knows, and is a child graph.
//   Early      Between two kernels of few blocks lies mostly the launch of the second: it begins before the
//              first has ended, and waits itself (kernels/block.h, follow()). Many blocks that wait would
//              take the place of other streams' blocks. How long they wait is not looked at.
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
  GraphNode last() const { return last_; }  // null: there is none yet
  Result<GraphExec> finish();
  // By which its nodes are named for as long as it lives; the caller's once it is given away.
  GraphHandle graph() const { return graph_; }
  void give_away() { graph_ = nullptr; }

 private:
  Result<GraphHandle> captured(const LibraryCall& call, const std::byte* operands);
  size_t before() const { return last_ == nullptr ? 0 : 1; }
  bool may_begin_early(const Launch& launch) const;

  const OpenDevice& device_;
  GraphHandle graph_ = nullptr;
  GraphNode last_ = nullptr;
  unsigned last_blocks_ = 0;       // of the last node; 0: it is no kernel of ours
  StreamHandle stream_ = nullptr;  // of captures; null: there was none yet
};

// Gives a kernel's node of an executable graph other parameters: those of the launches to come.
class NodeUpdate final : public StepTaker {
 public:
  NodeUpdate(const OpenDevice& device, GraphExec executable, GraphNode node)
      : device_(device), executable_(executable), node_(node) {}

  Status launch(const Launch& launch, std::byte* params) override;
  Result<bool> call(const LibraryCall&, const std::byte*) override { return false; }

 private:
  const OpenDevice& device_;
  const GraphExec executable_;
  const GraphNode node_;
};

}  // namespace heddle::cuda
