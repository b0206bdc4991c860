// Gradients accumulated in a tier have the bits of gradients accumulated on the device.
#include "actors/base/rank_context.hpp"
#include "actors/gradients/offloaded_gradients.hpp"
#include "actors/rank/rank_plan.hpp"
#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/delayed_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::OffloadedGradients;
using actors::TierKind;
using actors::UnitState;
using collectives::Range;
using runtime::DType;

namespace {

constexpr int orders = test::sanitized ? 10 : 60;

using Call = OffloadedGradients::Call;
using Bytes = std::vector<std::byte>;

/// Adds the random gradients of a batch, use by use, then reads them from the tier, for several batches.
class Batches {
 public:
  Batches(runtime::EventLoop& loop, runtime::Device& device, const actors::TrainerOptions& options,
          std::uint64_t seed)
      : random_(seed),
        architecture_(models::make_gpt(tests::in_precision(tests::small_gpt(2), options.precision))),
        plan_(tests::plan_of(architecture_, options, 1)) {
    actors::PlanContext planner{plan_, options.tiers, memory_plan_, tier_plan_};
    const OffloadedGradients::Plan plan = OffloadedGradients::plan(planner);
    tier_plan_.finish(options.tiers.files, memory_plan_);
    rank_ = std::make_unique<actors::RankResources>(loop, messages_.transport(0), device, memory_plan_, tier_plan_,
                                                    options.tiers.files);
    records_ = std::make_unique<OffloadedGradients>(rank_->context(), plan_, plan);
  }

  [[nodiscard]] const runtime::MemoryPlan& memory() const { return memory_plan_; }
  [[nodiscard]] const actors::UnitStates& states() const { return *plan_.states; }

  /// Calls `done` after everything was compared.
  void run(int batches, std::function<void()> done) {
    if (batches == 0) return done();
    done_ = [this, batches, done = std::move(done)] { run(batches - 1, done); };
    uses_.clear();
    for (std::size_t unit = 0; unit < states().all().size(); ++unit) {
      for (std::size_t use = 0; use < states().all()[unit].gradients.size(); ++use) uses_.push_back({unit, use});
    }
    missing_ = uses_.size();
    for (std::size_t u = 0; u < uses_.size(); ++u) {
      // Layers add to the previous sum; or the next microbatch comes when the buffer is free again; or all come at once
      // in separate buffers.
      const int microbatches = 1 + static_cast<int>(random_() % 3);
      if (!states().shards_gradients()) {
        keep_next(u, 0, microbatches);
      } else if (random_() % 2 == 0) {
        add_next(u, 0, microbatches);
      } else {
        auto left = std::make_shared<int>(microbatches);
        for (int m = 0; m < microbatches; ++m) {
          add(u, m, [this, u, left] {
            if (--*left == 0) compare(u, 0);
          });
        }
      }
    }
  }

 private:
  struct Use {
    std::size_t unit = 0, use = 0;
    Bytes sum = {};  // sum of the complete unit
    std::vector<std::unique_ptr<Bytes>> places = {};
  };

  [[nodiscard]] DType dtype() const { return states().precision().gradient; }
  [[nodiscard]] const UnitState& unit(const Use& use) const { return states().all()[use.unit]; }

  Bytes random_values(std::size_t elements) {
    Bytes bytes(elements * size_of(dtype()));
    std::normal_distribution<float> normal;
    with_float_type(dtype(), [&](auto type) {
      for (std::size_t i = 0; i < elements; ++i) {
        const auto value = runtime::from_float<decltype(type)>(normal(random_));
        std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
      }
    });
    return bytes;
  }

  void add_to(Bytes& sum, const Bytes& more) const {
    with_float_type(dtype(), [&](auto type) {
      for (std::size_t at = 0; at < sum.size(); at += sizeof type) {
        decltype(type) left, right;
        std::memcpy(&left, sum.data() + at, sizeof left);
        std::memcpy(&right, more.data() + at, sizeof right);
        left = runtime::from_float<decltype(type)>(runtime::to_float(left) + runtime::to_float(right));
        std::memcpy(sum.data() + at, &left, sizeof left);
      }
    });
  }

  void add(std::size_t u, int microbatch, std::function<void()> done) {
    Use& use = uses_[u];
    Bytes values = random_values(unit(use).elements);
    if (microbatch == 0) {
      use.sum = values;
    } else {
      add_to(use.sum, values);
    }
    auto& place = *use.places.emplace_back(std::make_unique<Bytes>(std::move(values)));
    const Call call = microbatch == 0 ? Call::store : Call::add;
    records_->call(call, use.unit, use.use, place.data(), [this, &place, done = std::move(done)] {
      for (std::byte& byte : place) byte = static_cast<std::byte>(random_());  // the next user overwrites it
      done();
    });
  }

  void add_next(std::size_t u, int microbatch, int microbatches) {
    if (microbatch == microbatches) return compare(u, 0);
    add(u, microbatch, [=, this] { add_next(u, microbatch + 1, microbatches); });
  }

  /// The sum is requested before the buffer that has it was released.
  void keep_next(std::size_t u, int microbatch, int microbatches) {
    Use& use = uses_[u];
    auto& place = *use.places.emplace_back(std::make_unique<Bytes>(unit(use).elements * size_of(dtype())));
    if (microbatch == microbatches) {  // the last call completes when the one after it does
      return records_->call(Call::fetch, use.unit, use.use, place.data(), [=, this] { compare(u, 0); });
    }
    const auto add_and_keep = [=, this, &use, &place, values = random_values(unit(use).elements)] {
      if (microbatch == 0) {
        use.sum = place = values;
      } else {
        add_to(use.sum, values);
        add_to(place, values);
      }
      records_->call(Call::store, use.unit, use.use, place.data(), [this, &place] {
        for (std::byte& byte : place) byte = static_cast<std::byte>(random_());
      });
      keep_next(u, microbatch + 1, microbatches);
    };
    if (microbatch == 0) return add_and_keep();
    records_->call(Call::fetch, use.unit, use.use, place.data(), add_and_keep);
  }

  /// A bucket's elements of a range of [complete unit], run after run.
  [[nodiscard]] Bytes part(const Use& use, const Bytes& whole, Range range, std::size_t bucket) const {
    Bytes part;
    for (const Range& run : unit(use).cut.runs(range, bucket)) {
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(run.begin * size_of(dtype()));
      part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(run.count * size_of(dtype())));
    }
    return part;
  }

  void compare(std::size_t u, std::size_t bucket) {
    const Use& use = uses_[u];
    if (bucket == unit(use).cut.buckets()) {
      if (--missing_ == 0) done_();
      return;
    }
    const Bytes expected = part(use, use.sum, unit(use).gradients[0].range, bucket);
    auto arrived = std::make_shared<Bytes>(offload::Tier::whole_blocks(expected.size()));
    const OffloadedGradients::Stretch stretch = records_->bucket(use.unit, bucket);
    CHECK(stretch.elements() * size_of(dtype()) == expected.size());
    records_->move(offload::IoKind::read, use.unit, use.use, stretch, arrived->data(),
                   [this, u, bucket, expected, arrived] {
                     arrived->resize(expected.size());
                     CHECK(*arrived == expected);
                     if (uses_[u].use == 0) return park(u, bucket);
                     compare(u, bucket + 1);
                   });
  }

  void park(std::size_t u, std::size_t bucket) {
    const Use& use = uses_[u];
    auto reduced = std::make_shared<Bytes>(random_values(unit(use).cut.elements(unit(use).reduced, bucket)));
    if (random_() % 2 == 0) {
      records_->store_reduced(use.unit, bucket, reduced->data(),
                              [this, u, bucket, reduced] { take(u, bucket, *reduced); });
      return;
    }
    const auto expected = *reduced;
    records_->lend_reduced(use.unit, bucket, reduced->data(), [this, reduced] {
      for (std::byte& byte : *reduced) byte = static_cast<std::byte>(random_());
    });
    take(u, bucket, expected);
  }

  void take(std::size_t u, std::size_t bucket, const Bytes& expected) {
    auto arrived = std::make_shared<Bytes>(expected.size());
    records_->fetch_reduced(uses_[u].unit, bucket, arrived->data(), [this, u, bucket, expected, arrived] {
      CHECK(*arrived == expected);
      compare(u, bucket + 1);
    });
  }

  std::mt19937_64 random_;
  models::Architecture architecture_;
  actors::RankPlan plan_;
  offload::TierPlan tier_plan_;
  runtime::MemoryPlan memory_plan_;
  runtime::Simulation messages_{1, {}};  // none are sent
  std::unique_ptr<actors::RankResources> rank_;
  std::unique_ptr<OffloadedGradients> records_;
  std::vector<Use> uses_;
  std::size_t missing_ = 0;
  std::function<void()> done_;
};

actors::TrainerOptions random_options(std::mt19937_64& random, TierKind kind) {
  auto options = tests::small_run({1, 4});
  options.group_size = 2;
  constexpr std::array scopes = {collectives::Scope::none, collectives::Scope::group, collectives::Scope::global};
  options.sharding = {scopes[random() % 3], scopes[random() % 3], scopes[random() % 3]};
  const std::array<models::Precision, 4> precisions = {
      {{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}, {DType::f16, DType::f16}}};
  options.precision = precisions[random() % precisions.size()];
  options.tiers.gradients = kind;
  options.tiers.bucket_elements = std::array{33, 600, 1500, 5000, 1 << 20}[random() % 5];
  options.tiers.depth = 1 + random() % 3;
  return options;
}

}  // namespace

TEST_CASE("gradients accumulated in host memory have the bits of sums on the device, in any order of events") {
  for (const std::uint64_t seed : test::seeds(orders)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    runtime::Simulation simulation(1, {.seed = seed});
    tests::DelayedDevice device(simulation.loop(0), seed);
    Batches batches(simulation.loop(0), device, random_options(random, TierKind::host), seed);
    simulation.loop(0).post([&] { batches.run(2, [&] { simulation.loop(0).stop(); }); });
    simulation.run();
  }
}

TEST_CASE("gradients accumulated in files have the bits of sums on the device") {
  for (const std::uint64_t seed : test::seeds(orders / 5)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const tests::TemporaryFolder folder;
    const auto device = runtime::make_cpu_device({});
    runtime::AsioLoop loop;
    device->on_failure([&](std::exception_ptr error) { loop.stop(error); });
    auto options = random_options(random, TierKind::nvme);
    options.tiers.files = {.directories = {folder.path()}, .checksums = true};
    Batches batches(loop, *device, options, seed);
    loop.post([&] { batches.run(2, [&] { loop.stop(); }); });
    loop.run();
  }
}

TEST_CASE(
    "with gradients in a tier the device has a few slots of a bucket's size, regardless of the gradients' scope") {
  for (const char* sharding : {"ddp", "zero1", "mics", "zero3"}) {
    CAPTURE(std::string(sharding));
    auto options = tests::small_run({1, 4}, sharding);
    options.group_size = 2;
    options.tiers = {.gradients = TierKind::host, .bucket_elements = 1024, .depth = 2};
    const auto device = runtime::make_inline_device();
    runtime::Simulation simulation(1, {});
    const Batches batches(simulation.loop(0), *device, options, 0);
    const std::size_t slots = batches.states().shards_gradients() ? 2 : 0;
    CHECK(batches.memory().bytes(runtime::MemorySpace::device, runtime::MemoryKind::gradients) == slots * 4096);
    std::size_t elements = 0;
    for (const UnitState& unit : batches.states().all())
      elements += unit.gradients.size() * unit.gradients.front().range.count;
    CHECK(batches.memory().bytes(runtime::MemorySpace::pinned) >= elements * sizeof(float));
  }
}

TEST_CASE("an update on the host needs no memory for gradients in host memory, unless they are gathered") {
  const auto architecture = models::make_gpt(tests::small_gpt());
  auto options = tests::small_run({2, 2});
  options.group_size = 1;
  options.tiers = {.gradients = TierKind::host, .optimizer = TierKind::host, .step = actors::StepLocation::host};
  for (const char* name : {"ddp", "zero2", "NGI"}) {
    CAPTURE(std::string(name));
    options.sharding = collectives::parse_sharding(name);
    const bool gathers = std::string(name) == "NGI";
    const auto plan = tests::plan_of(architecture, options, 0);
    CHECK(plan.flow.gather_gradient.empty() == !gathers);
    std::size_t items = 0;
    for (const runtime::MemoryItem& item : plan.memory.items()) {
      if (item.name != "gradients for the optimizer" && item.name != "gradients for the step on the host") continue;
      ++items;
      CHECK((item.slots > 0) == gathers);
    }
    CHECK(items == 2);
  }
}

TEST_CASE("with gradients in a tier the sums are planned there, and the device has one chunk and a few buffers") {
  const auto architecture = models::make_gpt(tests::small_gpt(12));
  auto options = tests::small_run();
  const auto on_device = tests::plan_of(architecture, options, 0);
  options.tiers.gradients = TierKind::host;
  const auto in_tier = tests::plan_of(architecture, options, 0);
  std::size_t sums = 0, largest_chunk = 0;
  for (const actors::UnitState& unit : on_device.states->all())
    sums += unit.gradients.size() * unit.gradients[0].bytes();
  for (const actors::ChunkSchedule::Chunk& chunk : in_tier.chunks.chunks) {
    std::size_t bytes = 0;
    for (const auto& [u, index] : in_tier.chunks.buckets(chunk)) {
      const actors::UnitState& unit = in_tier.states->all()[u];
      bytes += offload::Tier::whole_blocks(unit.cut.elements(unit.gradients[0].range, index) * sizeof(float));
    }
    largest_chunk = std::max(largest_chunk, bytes);
  }
  const std::size_t places = std::min<std::size_t>(3, in_tier.chunks.chunks.size());
  using runtime::MemoryKind;
  using runtime::MemorySpace;
  CHECK(on_device.memory.bytes(MemorySpace::device, MemoryKind::gradients) >= sums);
  CHECK(in_tier.memory.bytes(MemorySpace::pinned, MemoryKind::gradients) >= sums);
  CHECK(in_tier.memory.bytes(MemorySpace::device, MemoryKind::gradients) == places * largest_chunk);
}
