#include "originals.h"

#include "roles.h"
#include "settings.h"
#include "shapes.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace agx_guard {

namespace {

// A class and selector that were looked up before. Never freed: readers take no lock.
struct Bound {
  Class of;
  SEL selector;
  const Original* original;
};

struct Table {
  std::mutex lock;
  std::deque<Original> originals;  // addresses stay
  std::map<std::pair<Class, std::string>, const Original*> by_class;
  std::map<std::string, const Original*> by_name;  // the first: what leaving classes out amounts to
  std::map<std::tuple<std::string, Kind>, std::unique_ptr<Selector>> selectors;
  std::deque<Bound> bounds;  // those that newer classes have outdated included
  std::map<std::pair<Class, SEL>, const Bound*> current;
  std::set<Class> leaves;
  std::set<std::string> unguarded;
};

Table& table() {
  static auto* const made = new Table;  // hooks run until the process is gone
  return *made;
}

constexpr size_t kCached = 4096;
std::atomic<const Bound*> cache[kCached];
std::atomic<const void*> last_leaf{nullptr};

size_t place(Class of, SEL selector) {
  const auto a = reinterpret_cast<uintptr_t>((const void*)of),
             b = reinterpret_cast<uintptr_t>((const void*)selector);
  return ((a >> 4) * 31 + (b >> 3)) % kCached;
}

const Original* search(Table& of_process, Class from, const std::string& name) {
  const Original* original = nullptr;
  for (Class at = from; at && !original; at = class_getSuperclass(at)) {
    const auto found = of_process.by_class.find({at, name});
    if (found != of_process.by_class.end()) original = found->second;
  }
  const bool by_name = !settings().by_class && original && original->kind == Kind::encoder &&
                       original->call->role != Role::dealloc;
  return by_name ? of_process.by_name.at(name) : original;
}

const Original* find_and_remember(Class of, SEL selector) {
  Table& known = table();
  const std::lock_guard hold(known.lock);
  const Bound*& bound = known.current[{of, selector}];
  if (!bound) {
    bound = &known.bounds.emplace_back(Bound{of, selector, search(known, of, sel_getName(selector))});
  }
  cache[place(of, selector)].store(bound, std::memory_order_release);
  return bound->original;
}

const Selector* intern(Table& known, const std::string& name, Kind kind, bool returns) {
  std::unique_ptr<Selector>& selector = known.selectors[{name, kind}];
  if (!selector) selector = std::make_unique<Selector>(describe(name, kind, returns));
  return selector.get();
}

// Whether methods of this class are the encoder's (buffer's, queue's) own business: a root class that all
// objects of Metal share is not.
bool is_part_of(Class at, Kind kind) {
  const std::string name = class_getName(at);
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  switch (kind) {
    case Kind::encoder:
      return has("Encoder") || has("Context");
    case Kind::buffer:
      return has("CommandBuffer");
    case Kind::queue:
      return has("CommandQueue");
  }
}

void add_methods_of(Protocol* protocol, std::set<std::string>& names, std::set<std::string>& seen) {
  if (!seen.insert(protocol_getName(protocol)).second || !strcmp(protocol_getName(protocol), "NSObject"))
    return;
  for (const bool required : {true, false}) {
    unsigned count = 0;
    objc_method_description* const methods =
        protocol_copyMethodDescriptionList(protocol, required, true, &count);
    for (unsigned i = 0; i < count; ++i) names.insert(sel_getName(methods[i].name));
    free(methods);
  }
  unsigned count = 0;
  Protocol* __unsafe_unretained* const parents = protocol_copyProtocolList(protocol, &count);
  for (unsigned i = 0; i < count; ++i) add_methods_of(parents[i], names, seen);
  free(parents);
}

// All that the protocols of the class and its superclasses declare: public ones and the system's own.
std::set<std::string> declared_methods(Class leaf) {
  std::set<std::string> names, seen;
  for (Class at = leaf; at; at = class_getSuperclass(at)) {
    unsigned count = 0;
    Protocol* __unsafe_unretained* const protocols = class_copyProtocolList(at, &count);
    for (unsigned i = 0; i < count; ++i) add_methods_of(protocols[i], names, seen);
    free(protocols);
  }
  return names;
}

bool wanted(const std::string& name, Kind kind, const std::set<std::string>& declared,
            const std::string& signature) {
  if (kind == Kind::encoder) return is_driver_private(name) || declared.count(name);
  return is_of_interest(name, kind, signature[0] == '@');
}

bool replace(Table& known, Class owner, Method method, Kind kind, const std::set<std::string>& declared) {
  const std::string name = sel_getName(method_getName(method));
  const std::string signature = signature_of(method);
  if (!wanted(name, kind, declared, signature)) return false;
  const std::string text = std::string("-[") + class_getName(owner) + " " + name + "]";
  const IMP hook = hook_for(signature);
  if (!hook) {
    known.unguarded.insert(text + " " + signature);
    return false;
  }
  const auto known_already = known.by_class.find({owner, name});
  if (known_already != known.by_class.end()) {
    const bool restored = method_getImplementation(method) != hook;
    if (restored) method_setImplementation(method, hook);
    return restored;
  }
  Original& original = known.originals.emplace_back();
  original.owner = owner;
  original.selector = method_getName(method);
  original.method = method;
  original.implementation = method_getImplementation(method);
  original.hook = hook;
  original.call = intern(known, name, kind, signature[0] != 'v');
  original.kind = kind;
  original.text = text;
  known.by_class[{owner, name}] = &original;
  if (kind == Kind::encoder) known.by_name.emplace(name, &original);
  method_setImplementation(method, hook);  // last: from here on others may call it
  return true;
}

Kind kind_of(Class leaf, bool& known) {
  static const struct {
    const char* protocol;
    Kind kind;
  } kinds[] = {{"MTLCommandEncoder", Kind::encoder},
               {"MTLCommandBuffer", Kind::buffer},
               {"MTLCommandQueue", Kind::queue}};
  for (const auto& [name, kind] : kinds) {
    Protocol* const protocol = objc_getProtocol(name);
    for (Class at = leaf; protocol && at; at = class_getSuperclass(at)) {
      if (class_conformsToProtocol(at, protocol)) {
        known = true;
        return kind;
      }
    }
  }
  known = false;
  return Kind::encoder;
}

}  // namespace

const Original* find_original(Class of, SEL selector) {
  const Bound* bound = cache[place(of, selector)].load(std::memory_order_acquire);
  if (bound && bound->of == of && bound->selector == selector) [[likely]]
    return bound->original;
  return find_and_remember(of, selector);
}

const Original* find_above(const Original& original) {
  const Original* above = original.above.load(std::memory_order_acquire);
  if (!above) {
    Table& known = table();
    const std::lock_guard hold(known.lock);
    above = search(known, class_getSuperclass(original.owner), original.call->name);
    original.above.store(above, std::memory_order_release);
  }
  return above;
}

bool guard_class(Class leaf, Kind kind) {
  Table& known = table();
  const std::lock_guard hold(known.lock);
  bool replaced = false;
  const std::set<std::string> declared = declared_methods(leaf);
  for (Class at = leaf; at && is_part_of(at, kind); at = class_getSuperclass(at)) {
    unsigned count = 0;
    Method* const methods = class_copyMethodList(at, &count);
    for (unsigned i = 0; i < count; ++i) replaced |= replace(known, at, methods[i], kind, declared);
    free(methods);
  }
  known.leaves.insert(leaf);
  // A class that was looked up before it was guarded is bound to its superclass's originals.
  known.current.clear();
  for (auto& bound : cache) bound.store(nullptr, std::memory_order_release);
  return replaced;
}

bool is_guarded(Class leaf) {
  if (last_leaf.load(std::memory_order_relaxed) == (const void*)leaf) return true;
  Table& known = table();
  const std::lock_guard hold(known.lock);
  if (!known.leaves.count(leaf)) return false;
  last_leaf.store((const void*)leaf, std::memory_order_relaxed);
  return true;
}

bool guard_driver_classes() {
  std::vector<Class> classes(size_t(objc_getClassList(nullptr, 0)));
  classes.resize(size_t(objc_getClassList(classes.data(), int(classes.size()))));
  bool replaced = false;
  for (const Class one : classes) {
    if (strncmp(class_getName(one), "AGX", 3)) continue;
    bool known = false;
    const Kind kind = kind_of(one, known);
    if (known) replaced |= guard_class(one, kind);
  }
  return replaced;
}

void restore_originals() {
  Table& known = table();
  const std::lock_guard hold(known.lock);
  for (const Original& original : known.originals) {
    if (method_getImplementation(original.method) == original.hook) {
      method_setImplementation(original.method, original.implementation);
    }
  }
  known.leaves.clear();
  last_leaf.store(nullptr, std::memory_order_relaxed);
}

size_t count_replaced_by_others() {
  Table& known = table();
  const std::lock_guard hold(known.lock);
  size_t count = 0;
  for (const Original& original : known.originals) {
    count += method_getImplementation(original.method) != original.hook;
  }
  return count;
}

Guarded guarded() {
  Table& known = table();
  const std::lock_guard hold(known.lock);
  Guarded found;
  for (const Class leaf : known.leaves) found.classes.push_back(class_getName(leaf));
  for (const Original& original : known.originals) found.methods.push_back(&original);
  found.unguarded.assign(known.unguarded.begin(), known.unguarded.end());
  return found;
}

}  // namespace agx_guard
