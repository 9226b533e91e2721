// string.h: NSStrings from C++ strings.
#pragma once

#import <Foundation/NSString.h>

#include <cstdarg>
#include <string>

namespace heddle::foundation {

NSString* new_string(std::string text) NS_RETURNS_RETAINED;
NSString* string(std::string text);  // autoreleased

// %@ and the conversions of printf but %n.
std::string format(NSString* pattern, va_list arguments);

}  // namespace heddle::foundation
