// object.h: the two things of NSObject that the double adds to Apple's: counted objects and zombies.
//
//   What       bury() ends an object as -dealloc does, but keeps its memory and turns it into a zombie: any
//              later message to it aborts with NSZombie's words. The newest kZombies are kept, or as many
//              as HEDDLE_METAL_DOUBLE_ZOMBIES says, older ones are freed.
//   Threads    Any.
#pragma once

#import <Foundation/NSObject.h>

namespace heddle::foundation {

inline constexpr NSUInteger kZombies = 1 << 16;
void bury(id object);

// Runs an object's C++ destructors: GCC's runtime does not.
void destroy_members(id object);

// Hands the caller's ownership to the thread's newest pool; without one the object leaks, with a line on
// stderr.
void give_to_pool(id object);

}  // namespace heddle::foundation
