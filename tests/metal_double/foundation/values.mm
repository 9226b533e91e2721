// values.mm: the small classes: NSData, NSURL, NSError, NSException, NSLock, NSProcessInfo.
#import <Foundation/Foundation.h>

#include <cstring>
#include <mutex>
#include <string>

#include <unistd.h>

#import "string.h"

#include "tests/metal_double/foundation/system_version.h"

@interface HeddleData : NSData {
 @public
  void* _bytes;
  NSUInteger _length;
  bool _owned;
}
@end
@implementation HeddleData
- (void)dealloc {
  if (_owned) free(_bytes);
  [super dealloc];
}
@end

@implementation NSData
+ (instancetype)data {
  return [self dataWithBytes:nullptr length:0];
}
+ (instancetype)dataWithBytes:(const void*)bytes length:(NSUInteger)length {
  void* const copy = malloc(length ? length : 1);
  if (length) memcpy(copy, bytes, length);
  return [self dataWithBytesNoCopy:copy length:length freeWhenDone:YES];
}
+ (instancetype)dataWithBytesNoCopy:(void*)bytes length:(NSUInteger)length freeWhenDone:(BOOL)free {
  HeddleData* const made = [HeddleData alloc];
  made->_bytes = bytes;
  made->_length = length;
  made->_owned = free;
  return [made autorelease];
}
- (const void*)bytes {
  return static_cast<HeddleData*>(self)->_bytes;
}
- (NSUInteger)length {
  return static_cast<HeddleData*>(self)->_length;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}
@end

@interface HeddleURL : NSURL {
 @public
  NSString* _path;
}
@end
@implementation HeddleURL
- (void)dealloc {
  [_path release];
  [super dealloc];
}
@end

@implementation NSURL
+ (NSURL*)fileURLWithPath:(NSString*)path {
  HeddleURL* const made = [HeddleURL alloc];
  made->_path = [path copy];
  return [made autorelease];
}
- (NSString*)path {
  return static_cast<HeddleURL*>(self)->_path;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}
@end

NSErrorUserInfoKey const NSLocalizedDescriptionKey = @"NSLocalizedDescription";
NSErrorUserInfoKey const NSUnderlyingErrorKey = @"NSUnderlyingError";

@interface HeddleError : NSError {
 @public
  NSErrorDomain _domain;
  NSInteger _code;
  NSDictionary* _info;
}
@end
@implementation HeddleError
- (void)dealloc {
  [_domain release];
  [_info release];
  [super dealloc];
}
@end

@implementation NSError
+ (instancetype)errorWithDomain:(NSErrorDomain)domain code:(NSInteger)code userInfo:(NSDictionary*)info {
  HeddleError* const made = [HeddleError alloc];
  made->_domain = [domain copy];
  made->_code = code;
  made->_info = info ? [info copy] : [[NSDictionary dictionary] retain];
  return [made autorelease];
}
- (NSErrorDomain)domain {
  return static_cast<HeddleError*>(self)->_domain;
}
- (NSInteger)code {
  return static_cast<HeddleError*>(self)->_code;
}
- (NSDictionary*)userInfo {
  return static_cast<HeddleError*>(self)->_info;
}
- (NSString*)localizedDescription {
  NSString* const said = [[self userInfo] objectForKey:NSLocalizedDescriptionKey];
  if (said) return said;
  return [NSString
      stringWithFormat:@"The operation couldn't be completed. (%@ error %ld.)", [self domain], [self code]];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"Error Domain=%@ Code=%ld \"%@\"", [self domain], [self code],
                                    [self localizedDescription]];
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}
@end

NSExceptionName const NSGenericException = @"NSGenericException";
NSExceptionName const NSInvalidArgumentException = @"NSInvalidArgumentException";
NSExceptionName const NSInternalInconsistencyException = @"NSInternalInconsistencyException";
NSExceptionName const NSRangeException = @"NSRangeException";

@implementation NSException
+ (NSException*)exceptionWithName:(NSExceptionName)name
                           reason:(NSString*)reason
                         userInfo:(NSDictionary*)info {
  (void)info;
  NSException* const made = [NSException alloc];
  made->_name = [name copy];
  made->_reason = [reason copy];
  return [made autorelease];
}
+ (void)raise:(NSExceptionName)name format:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  NSString* const reason = heddle::foundation::string(heddle::foundation::format(pattern, arguments));
  va_end(arguments);
  [[NSException exceptionWithName:name reason:reason userInfo:nil] raise];
}
- (void)raise {
  @throw self;
}
- (NSExceptionName)name {
  return _name;
}
- (NSString*)reason {
  return _reason;
}
- (void)dealloc {
  [_name release];
  [_reason release];
  [super dealloc];
}
@end

@interface HeddleLock : NSLock {
 @public
  std::mutex _mutex;
}
@end
@implementation HeddleLock
@end

@implementation NSLock
+ (instancetype)alloc {
  return self == [NSLock class] ? static_cast<id>([HeddleLock alloc]) : static_cast<id>([super alloc]);
}
- (void)lock {
  static_cast<HeddleLock*>(self)->_mutex.lock();
}
- (void)unlock {
  static_cast<HeddleLock*>(self)->_mutex.unlock();
}
- (BOOL)tryLock {
  return static_cast<HeddleLock*>(self)->_mutex.try_lock();
}
@end

static NSOperatingSystemVersion version_now() {
  const auto version = heddle::metal_double::system_version();
  return {version.major, version.minor, 0};
}

@implementation NSProcessInfo
+ (NSProcessInfo*)processInfo {
  static NSProcessInfo* const only = [NSProcessInfo new];
  return only;
}
- (NSOperatingSystemVersion)operatingSystemVersion {
  return version_now();
}
- (NSString*)operatingSystemVersionString {
  const NSOperatingSystemVersion version = version_now();
  return [NSString stringWithFormat:@"Version %ld.%ld (Metal double on Linux)", version.majorVersion,
                                    version.minorVersion];
}
- (NSUInteger)processorCount {
  return static_cast<NSUInteger>(sysconf(_SC_NPROCESSORS_ONLN));
}
- (unsigned long long)physicalMemory {
  return static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version {
  const NSOperatingSystemVersion now = version_now();
  if (now.majorVersion != version.majorVersion) return now.majorVersion > version.majorVersion;
  if (now.minorVersion != version.minorVersion) return now.minorVersion > version.minorVersion;
  return now.patchVersion >= version.patchVersion;
}
@end
