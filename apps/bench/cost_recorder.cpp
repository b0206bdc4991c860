#include "apps/bench/cost_recorder.hpp"

#include "runtime/base/error.hpp"

#include <cstddef>
#include <exception>
#include <memory>
#include <string>

namespace ranvier::apps {

namespace {

/// Device without memory and events that records costs of launches.
class RecordingDevice final : public runtime::Device {
 public:
  explicit RecordingDevice(const runtime::Device& device) : device_(device) {}

  [[nodiscard]] runtime::DeviceKind kind() const noexcept override { return runtime::DeviceKind::phantom; }
  [[nodiscard]] std::string description() const override { return "costs of " + device_.description(); }
  [[nodiscard]] int threads() const noexcept override { return device_.threads(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::size_t budget_bytes() const noexcept override { return 0; }
  [[nodiscard]] bool apart() const noexcept override { return device_.apart(); }
  [[nodiscard]] bool host_reaches(const void* address) const override { return device_.host_reaches(address); }
  [[nodiscard]] runtime::Buffer allocate(std::size_t /*bytes*/, runtime::MemorySpace /*space*/) override {
    refuse();
  }
  [[nodiscard]] std::unique_ptr<runtime::Stream> make_stream(std::string /*name*/,
                                                             runtime::StreamWidth /*width*/) override {
    refuse();
  }
  [[nodiscard]] std::unique_ptr<runtime::Event> make_event() override { refuse(); }
  void on_failure(std::function<void(std::exception_ptr)> /*handler*/) override {}

 private:
  [[noreturn]] static void refuse() { fail(ErrorCode::internal, "a cost recorder has only one stream"); }

  const runtime::Device& device_;
};

class RecordingStream final : public runtime::Stream {
 public:
  explicit RecordingStream(const runtime::Device& device) : device_(device) {}

  [[nodiscard]] runtime::Device& device() const noexcept override { return device_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  void launch(Work /*work*/) override { fail(ErrorCode::internal, "work of a profile states no cost"); }
  void launch(const runtime::WorkCost& cost, Work /*work*/) override { costs_.push_back(cost); }
  void call_back(std::function<void()> function) override { function(); }
  void wait(const runtime::Event& /*event*/) override {}
  void synchronize() override {}

  [[nodiscard]] const std::vector<runtime::WorkCost>& costs() const { return costs_; }

 private:
  mutable RecordingDevice device_;
  const std::string name_ = "costs";
  std::vector<runtime::WorkCost> costs_;
};

}  // namespace

std::vector<runtime::WorkCost> costs_of(const runtime::Device& device,
                                        const std::function<void(runtime::StreamView)>& queue) {
  RecordingStream stream(device);
  queue(stream);
  return stream.costs();
}

}  // namespace ranvier::apps
