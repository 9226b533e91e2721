#include "carry.h"

#include "buffers.h"
#include "counters.h"

#import <Metal/Metal.h>

#include <map>
#include <mutex>

namespace agx_guard {

namespace {

const struct {
  const char* protocol;
  const char* factory;
} kCarried[] = {{"MTLComputeCommandEncoder", "computeCommandEncoder"},
                {"MTLBlitCommandEncoder", "blitCommandEncoder"},
                {"MTLResourceStateCommandEncoder", "resourceStateCommandEncoder"},
                {"MTLAccelerationStructureCommandEncoder", "accelerationStructureCommandEncoder"}};

SEL look_up_factory(Class kind) {
  for (const auto& [name, factory] : kCarried) {
    Protocol* const protocol = objc_getProtocol(name);
    for (Class at = kind; protocol && at; at = class_getSuperclass(at)) {
      if (class_conformsToProtocol(at, protocol)) return sel_registerName(factory);
    }
  }
  return nullptr;
}

// The command buffer's method that makes an encoder of this class; null when a descriptor would be needed.
SEL factory_of(Class kind) {
  static std::mutex lock;
  static auto* const known = new std::map<Class, SEL>;
  const std::lock_guard hold(lock);
  const auto found = known->find(kind);
  if (found != known->end()) return found->second;
  return known->emplace(kind, look_up_factory(kind)).first->second;
}

void refuse(const Original& original, const char* why) {
  counters.late_refused.add();
  [NSException raise:NSInternalInconsistencyException
              format:@"%s was called after the encoder had ended, and cannot be carried over: %s",
                     original.text.c_str(), why];
}

void require_carriable(const Record& record, const Original& original) {
  if (!record.carries) return refuse(original, "this kind of encoder needs a pass to be made again");
  if (!record.buffer) return refuse(original, "the encoder was made before the guard was installed");
  if (record.kept.lost()) return refuse(original, "a setting of the encoder could not be kept");
  if (record.forgets && original.call->uses_settings) {
    refuse(original, "its command buffer has completed, and its settings were let go");
  }
}

Carrier* make_carrier(Record& record) {
  const id encoder = (id)record.encoder.load(std::memory_order_relaxed);
  const id<MTLCommandBuffer> buffer = [[record.buffer->queue commandBuffer] retain];
  const SEL factory = factory_of(object_getClass(encoder));
  const IMP make = class_getMethodImplementation(object_getClass(buffer), factory);
  const id made = [reinterpret_cast<id (*)(id, SEL)>(make)(buffer, factory) retain];
  record.kept.each([&](const KeptSetting& setting) {
    const SEL selector = sel_registerName(setting.call->name.c_str());
    setting.apply(setting, made, selector, class_getMethodImplementation(object_getClass(made), selector));
  });
  counters.late_buffers.add();
  return new Carrier{.buffer = buffer, .encoder = made};
}

void drop_carrier(Record& record) {
  [record.carrier->encoder release];
  [record.carrier->buffer release];
  delete record.carrier;
  record.carrier = nullptr;
}

}  // namespace

bool can_carry(id encoder) { return factory_of(object_getClass(encoder)) != nullptr; }

id open_carrier(Record& record, const Original& original) {
  if (record.forgets && original.call->name == "setComputePipelineState:") record.forgets = false;
  require_carriable(record, original);
  if (!record.carrier) record.carrier = make_carrier(record);
  counters.late_carried.add();
  return record.carrier->encoder;
}

void send_carrier(Record& record) {
  const Inside own;
  [(id<MTLCommandEncoder>)record.carrier->encoder endEncoding];
  commit_behind(*record.buffer, (id<MTLCommandBuffer>)record.carrier->buffer);
  drop_carrier(record);
}

void close_carrier(Record& record) {
  if (!record.carrier) return;
  const Inside own;
  [(id<MTLCommandEncoder>)record.carrier->encoder endEncoding];
  drop_carrier(record);
}

}  // namespace agx_guard
