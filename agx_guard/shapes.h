// shapes.h: the hook that fits a method, found by the method's own type encoding.
//
// A hook is compiled per signature, not per selector: methods that a system adds are guarded when their
// signature is known, and a method whose types are not what we think is left alone instead of being called
// wrongly.
#pragma once

#import <Foundation/Foundation.h>

#include <objc/runtime.h>
#include <string>

namespace agx_guard {

// "void(@,Q,{QQQ})": without names of structs, qualifiers and pointees.
std::string signature_of(Method method);

// The hook for it, or null.
IMP hook_for(const std::string& signature);

}  // namespace agx_guard
