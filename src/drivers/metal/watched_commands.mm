#include "drivers/metal/watched_commands.h"

@interface HeddleWatchedCommands : MPSCommandBuffer {
 @public
  heddle::metal::Flight* _flight;
}
@end

@implementation HeddleWatchedCommands
- (void)commitAndContinue {
  _flight->add_earlier([self rootCommandBuffer]);
  [super commitAndContinue];
}
@end

namespace heddle::metal {

MPSCommandBuffer* watched_commands(id<MTLCommandBuffer> first, Flight& flight) {
  HeddleWatchedCommands* const made =
      [[[HeddleWatchedCommands alloc] initWithCommandBuffer:first] autorelease];
  made->_flight = &flight;
  return made;
}

}  // namespace heddle::metal
