#include "actors/pipeline/loader.hpp"

#include "actors/base/rank_context.hpp"
#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;
using Data = actors::Loader::Data;

namespace {

/// Sample n's input is n, its target 1000 + n. Samples below 0 cannot be read.
class Numbers : public models::SampleSource {
 public:
  std::int64_t samples() const override { return 1000; }
  std::size_t input_bytes() const override { return sizeof(std::int32_t); }
  std::size_t target_bytes() const override { return sizeof(std::int32_t); }
  std::int64_t losses_per_sample() const override { return 1; }
  void read_input(std::int64_t n, std::byte* to) const override { write(n, to); }
  void read_target(std::int64_t n, std::byte* to) const override { write(1000 + n, to); }

 private:
  static void write(std::int64_t number, std::byte* to) {
    if (number < 0) fail(ErrorCode::io, "sample {} cannot be read", number);
    const auto value = static_cast<std::int32_t>(number);
    std::memcpy(to, &value, sizeof value);
  }
};

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_cpu_device({}));
  all.push_back(std::make_unique<tests::FarDevice>(make_cpu_device({})));
  return all;
}

}  // namespace

TEST_CASE("samples are loaded to device memory, whether or not the host can access it") {
  for (const auto& device : devices()) {
    CAPTURE(device->description());
    AsioLoop loop;
    Simulation simulation(1, {});  // for its transport, which is not used
    const Numbers source;
    const actors::RankResources resources(loop, simulation.transport(0), *device);
    actors::Loader::Places places(*device, {});
    actors::Loader loader(resources.context(), places, source);
    constexpr int loads = 20, samples = 3;
    const Buffer buffer = device->allocate(2 * loads * samples * sizeof(std::int32_t), MemorySpace::device);
    auto* values = reinterpret_cast<std::int32_t*>(buffer.data());
    int done = 0;
    const auto count = [&] {
      if (++done == 2 * loads) loop.stop();
    };
    for (int i = 0; i < loads; ++i) {
      loader.load(Data::inputs, 10 * i, samples, reinterpret_cast<std::byte*>(values + 2 * samples * i), count);
      loader.load(Data::targets, 10 * i, samples, reinterpret_cast<std::byte*>(values + 2 * samples * i + samples),
                  count);
    }
    CHECK(loop.pending_work().any());
    loop.run();
    CHECK_FALSE(loop.pending_work().any());
    for (int i = 0; i < loads; ++i) {
      for (int s = 0; s < samples; ++s) {
        CHECK(values[2 * samples * i + s] == 10 * i + s);
        CHECK(values[2 * samples * i + samples + s] == 1000 + 10 * i + s);
      }
    }
  }
}

TEST_CASE("after a microbatch is read, the next step's microbatch is announced") {
  struct Announced final : Numbers {
    void prefetch(std::int64_t n) const override { announced.push_back(n); }
    mutable std::vector<std::int64_t> announced;
  };
  for (const std::int64_t stride : {0, 64}) {
    const auto device = make_inline_device({});
    AsioLoop loop;
    Simulation simulation(1, {});  // for its transport, which is not used
    const Announced source;
    const actors::RankResources resources(loop, simulation.transport(0), *device);
    actors::Loader::Places places(*device, {});
    actors::Loader loader(resources.context(), places, source, stride);
    const Buffer buffer = device->allocate(100, MemorySpace::device);
    loader.load(Data::inputs, 16, 4, buffer.data(), [] {});
    loader.load(Data::targets, 20, 4, buffer.data(), [&] { loop.stop(); });
    loop.run();
    if (stride == 0)
      CHECK(source.announced.empty());
    else
      CHECK(source.announced == std::vector<std::int64_t>{80, 81, 82, 83, 84, 85, 86, 87});
  }
}

TEST_CASE("a sample that cannot be read ends the loop with its message") {
  for (const auto& device : devices()) {
    AsioLoop loop;
    Simulation simulation(1, {});  // for its transport, which is not used
    device->on_failure([&](std::exception_ptr error) { loop.stop(std::move(error)); });
    const Numbers source;
    const actors::RankResources resources(loop, simulation.transport(0), *device);
    actors::Loader::Places places(*device, {});
    actors::Loader loader(resources.context(), places, source);
    const Buffer buffer = device->allocate(100, MemorySpace::device);
    loader.load(Data::inputs, -5, 1, buffer.data(), [] {});
    CHECK_THROWS_WITH(loop.run(), "sample -5 cannot be read");
  }
}
