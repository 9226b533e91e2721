// defences.h: what the driver does against faults of Apple's stack. Each can be switched off, so that a test
// shows that it is needed; no other code does.
#pragma once

namespace heddle::metal {

struct Defences {
  // queue
  // A value is reached by its completion handler, not by a wait in Metal.
  bool handlers_end_submissions = true;
  bool below_metals_limit = true;    // waits in our own queue for the 64th buffer, with a bound, not in Metal
  bool errors_fail_timeline = true;  // a command buffer's error is looked at before its value is reached
  bool notices_nil = true;  // what Metal could not make is a failure, not an object that does nothing
  // Before macOS 26, whose SDK is the first to say that an executable may go from thread to thread: one
  // thread at a time encodes it. Other executables are encoded meanwhile.
  bool encodes_in_turn = true;
  bool own_strided_copies = true;  // kernels of ours whose sources the submission holds, not MPS's copies
  bool watches_root = true;        // what MPSGraph commits is the root, not what its wrapper was made with
  bool orders_results = true;      // as the executable lists its targets, not as they were asked for
  // lowering: paths that are not re-entrant or not right in some versions (the path table says which)
  bool products_by_graph = true;    // no NDArray matrix multiplication
  bool norms_by_graph = true;       // no Metal layer-norm kernel
  bool unpacks_projections = true;  // attention reads q, k, v apart, not by strides of the packed projection
};

}  // namespace heddle::metal
