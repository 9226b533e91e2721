// originals.h: which implementation a call on a guarded object belongs to, by class and selector.
//
//   Invariant An Original is made before its method is replaced and lives as long as the process.
//   Threads   find() takes no lock after the first call of a class with a selector; the rest takes one.
#pragma once

#import <Foundation/Foundation.h>

#include <objc/runtime.h>
#include <atomic>
#include <string>
#include <vector>

namespace agx_guard {

enum class Kind : uint8_t { encoder, buffer, queue };

// What the guard has to do beside calling the original.
enum class Role : uint8_t {
  setting,       // an encoder's state: kept for calls that come late
  work,          // closes what a late call has opened
  annotation,    // debug groups and labels: nothing is lost when it comes late
  query,         // returns something
  end,           // -endEncoding
  destroy,       // -destroyImpl and its kin
  dealloc,       // of an encoder
  make_child,    // a parallel render encoder's factory
  make_encoder,  // a command buffer's factories
  commit,
  signal,
  wait,
  buffer_dealloc,
  make_buffer,  // a command queue's factories
};

// A selector's name and role. One per name and kind of object; addresses are compared.
struct Selector {
  std::string name;
  Role role;
  bool indexed;        // its last argument is an index, so that settings of other indices stay
  uint8_t group;       // settings of one group and index replace each other
  bool carries;        // a setting whose arguments can be kept
  bool uses_settings;  // work that depends on what was set
};

struct Original {
  Class owner;  // the class that implements it
  SEL selector;
  Method method;
  IMP implementation;
  IMP hook;
  const Selector* call;
  Kind kind;
  std::string text;                                     // "-[Class selector]"
  mutable std::atomic<const Original*> above{nullptr};  // what [super selector] in it reaches, when asked
};

// What a call of `selector` on an object of this class reaches; never null for a replaced method.
const Original* find_original(Class of, SEL selector);

// What [super selector] reaches from this implementation.
const Original* find_above(const Original& original);

// Replaces what is not yet replaced of the class and its superclasses; true when anything was.
bool guard_class(Class leaf, Kind kind);

// Whether guard_class() has seen the class. Takes no lock for the class asked about last.
bool is_guarded(Class leaf);

// Looks through all classes of the process for those of the GPU's driver.
bool guard_driver_classes();

void restore_originals();
size_t count_replaced_by_others();

struct Guarded {
  std::vector<std::string> classes;  // leaves, as found
  std::vector<const Original*> methods;
  std::vector<std::string> unguarded;  // "-[Class selector] types"
};
Guarded guarded();

}  // namespace agx_guard
