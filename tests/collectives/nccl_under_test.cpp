#include "tests/collectives/nccl_under_test.hpp"

#include "tests/collectives/nccl_world.hpp"

namespace ranvier::tests {
namespace {

class OverHostMemory final : public NcclUnderTest {
 public:
  collectives::NcclLibrary& library() override { return *library_; }
  runtime::Device& device() override { return *device_; }

 private:
  test::NcclWorld world_{1};
  std::unique_ptr<collectives::NcclLibrary> library_ = world_.make_library();
  std::unique_ptr<runtime::Device> device_ = world_.make_gpu();
};

}  // namespace

std::unique_ptr<NcclUnderTest> make_nccl_under_test() { return std::make_unique<OverHostMemory>(); }
std::optional<std::string> missing_nccl() { return std::nullopt; }

}  // namespace ranvier::tests
