// A kernel that fails while it runs: the failure is reported, no wait blocks forever, and all objects can be destroyed.
// In its own process, because nothing runs on a GPU afterwards.
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

__global__ void trap() { __trap(); }

int failures = 0;

void check(bool condition, const char* what) {
  std::printf("%s %s\n", condition ? "ok:    " : "FAILED:", what);
  failures += !condition;
}

}  // namespace

int main() {
  constexpr int skipped = 77;
  try {
    (void)cuda_device_count();
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    return skipped;
  }
  {
    const auto device = make_cuda_device({});
    std::atomic<int> handled{0}, ran{0};
    std::string message;
    device->on_failure([&](std::exception_ptr error) {
      try {
        std::rethrow_exception(error);
      } catch (const Error& failure) {
        message = failure.what();
        handled += failure.code() == ErrorCode::device ? 1 : 100;
      }
    });
    const auto stream = device->make_stream("failing", StreamWidth::whole);
    const auto other = device->make_stream("other", StreamWidth::one);
    const auto event = device->make_event();
    const Buffer buffer = device->allocate(100, MemorySpace::device);
    trap<<<1, 1, 0, cuda::native(*stream)>>>();
    cuda::check_launch("trap");
    stream->call_back([&] { ++ran; });
    for (int i = 0; i < 5000 && handled == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    check(handled == 1, "on_failure is called once, with a device error");
    std::printf("        %s\n", message.c_str());
    check(message.find("failing") != std::string::npos, "the message names the stream");
    check(ran == 0, "later callbacks do not run");
    event->record(*stream);
    other->wait(*event);
    check(event->reached(), "an event is reached nevertheless");
    bool thrown = false;
    try {
      other->synchronize();
    } catch (const Error&) {
      thrown = true;
    }
    check(thrown, "synchronize of any stream throws");
    other->call_back([&] { ++ran; });
  }
  check(true, "streams, events, memory and device are destroyed");
  return failures == 0 ? 0 : 1;
}
