// submitting.cpp: calls that no thread waits for; heddle/submitting.py stands on it.
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "arrays.h"
#include "bindings.h"
#include "gil.h"
#include "mailbox.h"
#include "model_call.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

// What Python keeps of a submission: to withdraw it.
struct Submitted {
  std::stop_source stop;
};

// answer_for(kind): the function that gets the answer.
template <class AnswerFor>
Submitted submit_as(const Model& model, const nb::args& args, const nb::kwargs& named,
                    const AnswerFor& answer_for) {
  const Entry entry;
  CallOptions options;
  Submitted submitted;
  options.cancel = submitted.stop.get_token();
  const std::vector<nb::handle> arrays = arrange(model, args, named, options);
  const std::vector<Tensor> inputs = to_tensors(model, arrays);
  Model::Answer answer = answer_for(kind_of(arrays).as_object());
  without_gil([&] { model.submit(inputs, options, std::move(answer)); });
  return submitted;
}

// answer(results, error), one of them None, is called once, on a thread of the model's. It holds the model: a
// model's end waits for its answers, and the thread that ends it may have the GIL, which they need.
Submitted submit(const Model& model, const nb::object& answer, const nb::args& args,
                 const nb::kwargs& named) {
  return submit_as(model, args, named, [&](const nb::object& kind) -> Model::Answer {
    const Callback callback(nb::make_tuple(answer, kind), "Model.submit");
    return [callback](const std::vector<Tensor>& outputs, const std::exception_ptr& error) {
      callback.visit_last([&](const nb::object& kept) {
        const nb::object give = kept[0];
        if (error != nullptr) {
          give(nb::none(), to_exception(error));
        } else {
          give(wrap(Kind(nb::object(kept[1])), outputs), nb::none());
        }
      });
    };
  });
}

// What Python has of a mailbox. Calls under way have it, too, and may drop it without the GIL.
struct Mail {
  Mail(int read_end, int write_end) : mailbox(std::make_shared<Mailbox>(read_end, write_end)) {}
  const std::shared_ptr<Mailbox> mailbox;
};

// The answer goes into the mailbox, and waiting[call] says whose it is: (future, kind). That is added last:
// it is this thread that takes answers out. The call holds the model: where the loop is closed nobody else
// may, and a model's end waits for its answers, for which it may need what the thread that ends it has.
Submitted submit_to(const Model& model, const Mail& mail, nb::dict waiting, const nb::object& future,
                    const nb::args& args, const nb::kwargs& named) {
  const uint64_t call = mail.mailbox->next_call();
  nb::object slot;
  Submitted submitted = submit_as(model, args, named, [&](const nb::object& kind) -> Model::Answer {
    slot = nb::make_tuple(future, kind);
    return [mailbox = mail.mailbox, call, held = std::optional<Model>(model)](
               std::vector<Tensor> results, std::exception_ptr error) mutable {
      mailbox->put(std::make_unique<Letter>(Letter{call, std::move(results), std::move(error)}));
      mailbox.reset();
      held.reset();
    };
  });
  waiting[nb::int_(call)] = slot;
  return submitted;
}

// (future, result, error), one of the last two None.
nb::object opened(const Letter& letter, const nb::handle future, const nb::object& kind) {
  if (letter.error != nullptr) return nb::make_tuple(future, nb::none(), to_exception(letter.error));
  try {
    return nb::make_tuple(future, wrap(Kind(kind), letter.results), nb::none());
  } catch (nb::python_error& e) {
    return nb::make_tuple(future, nb::none(), e.value());
  } catch (const std::exception&) {  // its own task's: other letters are behind it
    return nb::make_tuple(future, nb::none(), to_exception(std::current_exception()));
  }
}

nb::list take(const Mail& mail, nb::dict waiting) {
  const Entry entry;
  nb::list letters;
  for (const auto& letter : mail.mailbox->take()) {
    const nb::object slot = waiting.attr("pop")(letter->call, nb::none());
    if (!slot.is_none()) letters.append(opened(*letter, slot[0], slot[1]));  // else it was interrupted
  }
  return letters;
}

}  // namespace

void bind_submitting(nb::module_& m, nb::class_<Model>& model) {
  nb::class_<Submitted>(m, "Submitted").def("withdraw", [](Submitted& s) { s.stop.request_stop(); });
  nb::class_<Mail>(m, "Mail").def(nb::init<int, int>()).def("take", take, "waiting"_a);
  model.def("_submit", submit).def("_submit_to", submit_to);
}

}  // namespace heddle::python
