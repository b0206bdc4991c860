#include "models/modules/layer_call.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"

namespace ranvier::models {

void expect_planned_threads(const LayerCall& call, const std::string& layer) {
  expect(call.stream.device().threads() <= call.shape.threads,
         "{}: memory is laid out for {} threads, but the device has {}: set MicrobatchShape::threads", layer,
         call.shape.threads, call.stream.device().threads());
}

}  // namespace ranvier::models
