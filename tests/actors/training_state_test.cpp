// Training state in actors: read and written array by array, with any location.
#include "actors/base/rank_context.hpp"
#include "actors/optimizer/state_records.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/families/gpt.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::StateArray;
using actors::StateRecords;
using actors::TierKind;
using collectives::Scope;
using offload::IoKind;
using runtime::DType;

namespace {

/// Writes random values to all arrays of a rank's optimizer states in random pieces, then reads them in other pieces.
class WrittenAndRead {
 public:
  WrittenAndRead(runtime::EventLoop& loop, runtime::Device& device, const actors::TrainerOptions& options,
                 std::uint64_t seed)
      : random_(seed),
        architecture_(models::make_gpt(tests::in_precision(tests::small_gpt(2), options.precision))),
        plan_(tests::plan_of(architecture_, options, 1)),
        rank_(loop, messages_.transport(0), device, plan_.memory, plan_.tiers, options.tiers.files) {
    plan_.states->bind(rank_.context().arena);
    records_ = std::make_unique<StateRecords>(rank_.context(), plan_, plan_.optimizer.states);
    for (const StateArray& array : records_->arrays()) {
      std::normal_distribution<float> normal;
      auto& values = written_.emplace_back(array.range.count);
      std::generate(values.begin(), values.end(), [&] { return normal(random_); });
      read_.emplace_back(array.range.count);
    }
  }

  void run(std::function<void()> done) {
    next(0, 0, true, [this, done = std::move(done)] { next(0, 0, false, done); });
  }
  [[nodiscard]] std::size_t arrays() const { return records_->arrays().size(); }
  [[nodiscard]] bool same() const { return written_ == read_; }
  /// Error of reading an array that does not exist between steps.
  [[nodiscard]] Error error_of_gradients() {
    const auto value = std::as_writable_bytes(std::span(read_.front()).first(1));
    return tests::error_of(
        [&] { records_->access({IoKind::read, 0, actors::StateKind::gradients, 0, value, [] {}}); });
  }

 private:
  void next(std::size_t a, std::size_t at, bool writes, const std::function<void()>& done) {
    const auto arrays = records_->arrays();
    if (a == arrays.size()) return done();
    auto& values = writes ? written_[a] : read_[a];
    if (at == values.size()) return next(a + 1, 0, writes, done);
    const std::size_t count = 1 + random_() % (values.size() - at);
    const auto over = [this, a, at, count, writes, done] { next(a, at + count, writes, done); };
    const std::span<float> piece(values.data() + at, count);
    records_->access({writes ? IoKind::write : IoKind::read, arrays[a].unit, arrays[a].kind,
                      arrays[a].range.begin + at, std::as_writable_bytes(piece), over});
  }

  std::mt19937_64 random_;
  models::Architecture architecture_;
  actors::RankPlan plan_;
  runtime::Simulation messages_{1, {}};  // none are sent
  actors::RankResources rank_;
  std::unique_ptr<StateRecords> records_;
  std::vector<std::vector<float>> written_, read_;  // by array
};

}  // namespace

TEST_CASE("written training state reads back unchanged, with any location and sharding") {
  const tests::TemporaryFolder folder;
  for (const std::uint64_t seed : test::seeds(test::sanitized ? 12 : 54)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    auto options = tests::small_run({1, 4});
    options.group_size = 2;
    constexpr std::array scopes = {Scope::none, Scope::group, Scope::global};
    options.sharding = {scopes[random() % 3], scopes[random() % 3], scopes[seed % 3]};
    options.tiers.optimizer = std::array{TierKind::device, TierKind::host, TierKind::nvme}[seed / 3 % 3];
    if (options.tiers.optimizer != TierKind::device)
      options.tiers.step = random() % 2 == 0 ? actors::StepLocation::device : actors::StepLocation::host;
    if (random() % 2 == 0) options.precision = {DType::bf16, DType::f32};
    options.tiers.bucket_elements = std::array{600, 1500, 5000, 1 << 20}[random() % 4];
    options.tiers.files = {.directories = {folder.path()}, .checksums = random() % 2 == 0};

    const auto device = runtime::make_cpu_device({});
    runtime::AsioLoop loop;
    device->on_failure([&](std::exception_ptr error) { loop.stop(error); });
    WrittenAndRead states(loop, *device, options, seed);
    CHECK(states.arrays() > 0);
    CHECK(tests::says(states.error_of_gradients(), "no single view of its gradients"));
    loop.post([&] { states.run([&] { loop.stop(); }); });
    loop.run();
    CHECK(states.same());
  }
}
