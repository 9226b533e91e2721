#include "api/batch_runner.h"

#include "api/internals.h"
#include "api/replicas.h"

namespace heddle {
namespace {

using Views = batch::Coalescer::Views;

// Seats are filled by the host, which waits for what another stream still writes.
std::vector<Tensor> ready_on_host(std::span<const Tensor> inputs) {
  std::vector<Tensor> ready;
  for (const Tensor& input : inputs) ready.push_back(input.to_host());
  return ready;
}

Views seats_of(std::span<const Tensor> tensors) {
  Views views;
  for (const Tensor& tensor : tensors) views.push_back(Internals::view(tensor));
  return views;
}

template <class Body>
Model::Outcome outcome_of(Body&& body) {
  try {
    return {body(), nullptr};
  } catch (const Error&) {  // its own answer
    return {{}, std::current_exception()};
  }
}

Scatter run_in_seats(const Model& model, std::span<const std::vector<Tensor>> requests,
                     const std::function<void()>& formed) {
  if (requests.size() == 1) {  // alone, with its own memory
    formed();
    return [results = model(requests[0])] { return Outcomes{{results, nullptr}}; };
  }
  std::optional<Replicas::Taken> taken;  // until the batch is over
  if (const auto& replicas = Internals::rep(model)->replicas; replicas != nullptr) {
    taken.emplace(replicas->take(requests[0], static_cast<int64_t>(requests.size())));
    if (const Model* const other = taken->other()) return run_in_seats(*other, requests, formed);
  }
  const Ref<batch::Coalescer>& calls = Internals::rep(model)->calls;
  Outcomes outcomes(requests.size());
  std::vector<size_t> seat_of(requests.size());
  std::vector<Views> seated;
  std::vector<std::vector<Tensor>> owners;  // of what is seated
  for (size_t i = 0; i < requests.size(); ++i) {
    seat_of[i] = seated.size();
    outcomes[i] = outcome_of([&] {
      owners.push_back(ready_on_host(requests[i]));
      seated.push_back(seats_of(owners.back()));
      return std::vector<Tensor>();
    });
  }
  batch::Coalescer::Batch batch;
  if (!seated.empty()) batch = within_memory([&] { return take(calls->run_together(seated, formed)); });
  return
      [=, outcomes = std::move(outcomes), seated = std::move(seated), owners = std::move(owners)]() mutable {
        for (size_t i = 0; i < outcomes.size(); ++i) {
          if (outcomes[i].error != nullptr) continue;
          const size_t seat = seat_of[i];
          outcomes[i] = outcome_of([&] {
            return within_memory(
                [&] { return Internals::make_tensors(take(calls->answer(batch, seated[seat], seat))); });
          });
        }
        return std::move(outcomes);
      };
}

}  // namespace

batch::RequestRows::Described describe(std::span<const Tensor> inputs, const batch::RequestRows& rows,
                                       const Model& model) {
  batch::RequestRows::Described described = describe(inputs, rows);
  described.group = rows.group(model.group(inputs));
  return described;
}

std::vector<int64_t> Model::group(std::span<const Tensor> inputs) const {
  Views views;
  for (const Tensor& input : inputs) views.push_back(Internals::view(input));
  std::vector<int64_t> key;
  for (const ir::Extents& row : take(rep_->calls->shape_of(views)).row_extents) {
    key.push_back(static_cast<int64_t>(row.rank()));
    key.insert(key.end(), row.begin(), row.end());
  }
  return key;
}

std::vector<Model::Outcome> Model::run_together(std::span<const std::vector<Tensor>> requests,
                                                const std::function<void()>& formed) const {
  if (!rep_->batchable) throw Error(ErrorCode::unsupported, "the model cannot be batched: " + rep_->why_not);
  if (requests.empty()) return {};
  const batch::RequestRows rows({});
  for (const std::vector<Tensor>& inputs : requests) static_cast<void>(describe(inputs, rows));
  return run_in_seats(*this, requests, formed ? formed : [] {})();
}

RunJobs run_stacked(BatchFunction function, const batch::RequestRows& rows, double pad) {
  return [function = std::move(function), &rows, pad](std::span<const std::unique_ptr<Job>> jobs,
                                                      const std::function<void()>& formed) -> Scatter {
    const std::vector<Tensor> stacked = stack_rows(jobs, rows, pad);
    formed();
    return [jobs, &rows, results = function(stacked)] {
      Outcomes outcomes;
      for (std::vector<Tensor>& part : split_rows(results, jobs, rows)) {
        outcomes.push_back({std::move(part), nullptr});
      }
      return outcomes;
    };
  };
}

RunJobs run_seated(const Model& model) {
  return [model](std::span<const std::unique_ptr<Job>> jobs, const std::function<void()>& formed) {
    std::vector<std::vector<Tensor>> requests;
    requests.reserve(jobs.size());
    for (const auto& job : jobs) requests.push_back(job->inputs);
    return run_in_seats(model, requests, formed);
  };
}

}  // namespace heddle
