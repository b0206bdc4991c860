#include "tests/collectives/nccl_under_test.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "tests/device_under_test.hpp"

#include <utility>

namespace ranvier::tests {
namespace {

std::unique_ptr<collectives::NcclLibrary> open() {
  if constexpr (runtime::with_nccl) return collectives::open_nccl();
  fail(ErrorCode::device, "this build has no NCCL");
}

class OnGpu final : public NcclUnderTest {
 public:
  collectives::NcclLibrary& library() override { return *library_; }
  runtime::Device& device() override { return *device_; }

 private:
  std::unique_ptr<collectives::NcclLibrary> library_ = open();
  std::unique_ptr<runtime::Device> device_ = make_device();
};

}  // namespace

std::unique_ptr<NcclUnderTest> make_nccl_under_test() { return std::make_unique<OnGpu>(); }

std::optional<std::string> missing_nccl() {
  try {
    (void)open();
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace ranvier::tests
