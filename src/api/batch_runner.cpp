#include "api/batch_runner.h"

#include "api/internals.h"

namespace heddle {
namespace {

using Views = batch::Coalescer::Views;

// On the host: what another stream still writes is not staged before it is over.
Views ready_views(std::span<const Tensor> inputs) {
  Views views;
  for (const Tensor& input : inputs) {
    input.wait();
    views.push_back(Internals::view(input));
  }
  return views;
}

template <class Body>
JobAnswer answered(Body&& body) {
  try {
    return {body(), nullptr};
  } catch (const Error&) {  // its own answer
    return {{}, std::current_exception()};
  }
}

Scatter run_together(const Model& model, std::span<const std::unique_ptr<Job>> jobs,
                     const std::function<void()>& formed) {
  const Ref<batch::Coalescer>& calls = Internals::rep(model)->calls;
  std::vector<JobAnswer> answers(jobs.size());
  std::vector<size_t> seat_of(jobs.size());
  std::vector<Views> seated;
  for (size_t i = 0; i < jobs.size(); ++i) {
    seat_of[i] = seated.size();
    answers[i] =
        answered([&] { return seated.push_back(ready_views(jobs[i]->inputs)), std::vector<Tensor>(); });
  }
  batch::Coalescer::Batch batch;
  if (!seated.empty()) batch = within_memory([&] { return take(calls->run_together(seated, formed)); });
  return [=, answers = std::move(answers), seated = std::move(seated)]() mutable {
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].error != nullptr) continue;
      answers[i] = answered([&] {
        return within_memory([&] {
          return Internals::make_tensors(take(calls->answer(batch, seated[seat_of[i]], seat_of[i])));
        });
      });
    }
    return std::move(answers);
  };
}

}  // namespace

Described describe(std::span<const Tensor> inputs, const Padding& padding) {
  Described described{rows_of(inputs), length_of(inputs, padding), {}};
  described.key = group_key(inputs, described.length, padding);
  return described;
}

Described describe(std::span<const Tensor> inputs, const Model& model) {
  Described described{rows_of(inputs), 0, {}};
  Views views;
  for (const Tensor& input : inputs) views.push_back(Internals::view(input));
  const batch::CallShape shape = take(Internals::rep(model)->calls->shape_of(views));
  for (const ir::Extents& row : shape.row_extents) {
    described.key.push_back(static_cast<int64_t>(row.rank()));
    described.key.insert(described.key.end(), row.begin(), row.end());
  }
  return described;
}

RunJobs run_stacked(BatchFunction function, Padding padding) {
  return [function = std::move(function), padding = std::move(padding)](
             std::span<const std::unique_ptr<Job>> jobs, const std::function<void()>& formed) -> Scatter {
    const std::vector<Tensor> stacked = stack_rows(jobs, padding);
    formed();
    return [jobs, padding, results = function(stacked)] {
      std::vector<JobAnswer> answers;
      for (std::vector<Tensor>& part : split_rows(results, jobs, padding)) {
        answers.push_back({std::move(part), nullptr});
      }
      return answers;
    };
  };
}

RunJobs run_seated(const Model& model) {
  return [model](std::span<const std::unique_ptr<Job>> jobs, const std::function<void()>& formed) -> Scatter {
    if (jobs.size() > 1) return run_together(model, jobs, formed);
    formed();  // alone, with its own memory
    return [results = model(jobs[0]->inputs)] { return std::vector<JobAnswer>{{results, nullptr}}; };
  };
}

bool has_seats(const Model& model) {
  return model.batchable() && Internals::runtime(model.device()).device().traits().unified_memory;
}

}  // namespace heddle
