#include "shapes.h"

#include "hook.h"

#include <map>

namespace agx_guard {

namespace {

// By their layout, as encodings tell them. MTLSize and MTLOrigin are one and the same here.
using Object = id;
using Number = NSUInteger;
using Pointer = const void*;
struct Triple {
  NSUInteger values[3];
  bool operator==(const Triple&) const = default;
};
struct Range {
  NSUInteger values[2];
};
struct Region {
  Triple origin, size;
};
struct Viewport {
  double values[6];
};
struct Scissors {
  NSUInteger values[4];
};

template <class T>
std::string code() {
  if constexpr (std::is_same_v<T, Triple>)
    return "{QQQ}";
  else if constexpr (std::is_same_v<T, Range>)
    return "{QQ}";
  else if constexpr (std::is_same_v<T, Region>)
    return "{{QQQ}{QQQ}}";
  else if constexpr (std::is_same_v<T, Viewport>)
    return "{dddddd}";
  else if constexpr (std::is_same_v<T, Scissors>)
    return "{QQQQ}";
  else if constexpr (std::is_same_v<T, Pointer>)
    return "^";
  else
    return @encode(T);
}

// {CGSize="width"d"height"d}, r^v, @"NSString", @? and the like come down to {dd}, ^, @ and @.
std::string plain(const char* at) {
  std::string text;
  const std::string qualifiers = "rnNoORVA";
  while (*at) {
    const char here = *at++;
    if (qualifiers.find(here) != std::string::npos) continue;
    if (here == '"') {
      while (*at && *at++ != '"') {
      }
    } else if (here == '{') {
      text += here;
      const char* const fields = strpbrk(at, "={}");
      if (fields && *fields == '=') at = fields + 1;
    } else if (here == '^') {
      return text + "^";  // arguments come one by one: what is behind a pointer is its own affair
    } else if (here == '*') {
      text += '^';
    } else if (here == 'L') {
      text += 'Q';  // unsigned long is unsigned long long on every system that this is for
    } else if (here != '?' && !(here >= '0' && here <= '9')) {
      text += here;
    }
  }
  return text;
}

template <class Signature>
struct Shape;
template <class R, class... A>
struct Shape<R(A...)> {
  static void enter(std::map<std::string, IMP>& shapes) {
    std::string text = std::is_void_v<R> ? "v" : code<std::conditional_t<std::is_void_v<R>, int, R>>();
    text += "(";
    ((text += code<A>() + ","), ...);
    text += ")";
    shapes[text] = reinterpret_cast<IMP>(&hook<R, A...>);
  }
};

template <class... Signatures>
void enter(std::map<std::string, IMP>& shapes) {
  (Shape<Signatures>::enter(shapes), ...);
}

using O = Object;
using N = Number;
using P = Pointer;
using S = Triple;

void enter_settings(std::map<std::string, IMP>& shapes) {
  enter<void(), void(O), void(N), void(BOOL), void(float), void(uint32_t), void(Region), void(Viewport),
        void(Scissors), void(O, N), void(O, O), void(N, N), void(P, N), void(N, P), void(O, Range),
        void(P, Range), void(uint32_t, uint32_t), void(float, float), void(float, float, float),
        void(float, float, float, float), void(O, N, N), void(O, N, N, N), void(O, N, BOOL),
        void(O, float, float, N), void(N, N, N), void(N, N, N, N), void(P, N, N), void(P, N, N, N),
        void(P, P, Range), void(P, P, P, Range), void(P, Range, N)>(shapes);
}

void enter_work(std::map<std::string, IMP>& shapes) {
  enter<void(S), void(S, S), void(S, S, S), void(O, N, S), void(O, N, S, S), void(S, Region),
        void(S, Region, uint32_t), void(N, N, N, N, N), void(N, N, N, O, N), void(N, N, N, O, N, N),
        void(N, N, N, O, N, N, NSInteger, N), void(N, O, N), void(N, N, O, N, O, N),
        void(N, N, N, O, N, N, N), void(N, O, N, O, N), void(N, N, N, O, N, O, N, N, N),
        void(N, O, N, O, N, O, N), void(O, N, O, N), void(O, N, O, N, N), void(O, Range, uint8_t),
        void(O, Range, O, N), void(O, N, N, S, S, O, N, N, S), void(O, N, N, N, S, O, N, N, S),
        void(O, N, N, N, S, O, N, N, S, N), void(O, N, N, S, S, O, N, N, N),
        void(O, N, N, S, S, O, N, N, N, N), void(O, N, N, O, N, N, N, N), void(O, Region, N, N, BOOL, O, N),
        void(O, Region, N, N), void(O, N, P, P, P, N), void(O, N, Region, N, N), void(O, O, O, N),
        void(O, O, O, O, N), void(O, O, O, O, N, N), void(O, O, O, O, O, O), void(O, O, N),
        void(O, O, N, uint32_t), void(O, O, N, N)>(shapes);
}

void enter_others(std::map<std::string, IMP>& shapes) {
  enter<O(), O(O), O(N), O(O, N), N(), BOOL(), void(O, uint64_t)>(shapes);
}

const std::map<std::string, IMP>& all_shapes() {
  static const auto* const made = [] {
    auto* shapes = new std::map<std::string, IMP>;
    enter_settings(*shapes);
    enter_work(*shapes);
    enter_others(*shapes);
    return shapes;
  }();
  return *made;
}

std::string take(char* encoding) {
  const std::string text = plain(encoding);
  free(encoding);
  return text;
}

}  // namespace

std::string signature_of(Method method) {
  std::string text = take(method_copyReturnType(method)) + "(";
  const unsigned count = method_getNumberOfArguments(method);
  for (unsigned i = 2; i < count; ++i) text += take(method_copyArgumentType(method, i)) + ",";
  return text + ")";
}

IMP hook_for(const std::string& signature) {
  const auto found = all_shapes().find(signature);
  return found == all_shapes().end() ? nullptr : found->second;
}

}  // namespace agx_guard
