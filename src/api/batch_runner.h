// batch_runner.h: how a BatchQueue's batch runs: its rows stacked for a function, or in a model's seats.
//
//   What       A request is described where it is submitted, and run where a worker has it in a batch. A
//              function gets stacked tensors and may only fail as a whole. In a model's seats (Coalescer::
//              run_together) each request keeps its own rows, its own fault and its own results.
//   Errors     describe() throws what is wrong with the request. RunJobs throws what the whole batch gets;
//              the Scatter it returns throws likewise when the results are not one per row.
//   Threads    describe(): any. A RunJobs is its worker's.
#pragma once

#include "api/batch_rows.h"

namespace heddle {

// For the model's seats: what the model says of the request.
batch::RequestRows::Described describe(std::span<const Tensor> inputs, const batch::RequestRows& rows,
                                       const Model& model);

using Outcomes = std::vector<Model::Outcome>;
using Scatter = std::function<Outcomes()>;  // called once: one outcome per job
using RunJobs =
    std::function<Scatter(std::span<const std::unique_ptr<Job>>, const std::function<void()>& formed)>;

// `rows` outlives it. `pad` fills up what is ragged.
RunJobs run_stacked(BatchFunction function, const batch::RequestRows& rows, double pad);
RunJobs run_seated(const Model& model);

}  // namespace heddle
