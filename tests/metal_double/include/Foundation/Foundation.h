// Foundation.h: the part of Apple's Foundation that the Metal driver, the guard and the double use.
//
//   What      Names and signatures of Apple's headers; the bodies are in tests/metal_double/foundation. On
//             macOS this folder is not on the include path and Apple's own headers are found instead.
//   Threads   Immutable objects: any. Mutable ones: one thread at a time, as on macOS. retain and release:
//             any.
//   Language  clang, -fobjc-runtime=gcc, manual retain/release. That runtime needs explicit ivars, explicit
//             @synthesize, objectForKey: and objectAtIndex: in place of subscripts, and typed @catch.
#pragma once

#import <Foundation/NSObjCRuntime.h>
// Further classes need the two above.
#import <Foundation/NSObject.h>
// In alphabetical order from here.
#import <Foundation/NSArray.h>
#import <Foundation/NSAutoreleasePool.h>
#import <Foundation/NSData.h>
#import <Foundation/NSDictionary.h>
#import <Foundation/NSEnumerator.h>
#import <Foundation/NSError.h>
#import <Foundation/NSException.h>
#import <Foundation/NSLock.h>
#import <Foundation/NSProcessInfo.h>
#import <Foundation/NSRange.h>
#import <Foundation/NSString.h>
#import <Foundation/NSURL.h>
#import <Foundation/NSValue.h>
