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

/// Writes random bytes to all arrays of a rank's optimizer states in random pieces, then reads them in other pieces.
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
      auto& values = written_.emplace_back(runtime::bytes_of(dtype_of(array), array.range.count));
      std::generate(values.begin(), values.end(), [&] { return static_cast<std::byte>(random_()); });
      read_.emplace_back(values.size());
    }
  }

  void run(std::function<void()> done) {
    next(0, 0, true, [this, done = std::move(done)] { next(0, 0, false, done); });
  }
  [[nodiscard]] std::size_t arrays() const { return records_->arrays().size(); }
  [[nodiscard]] bool same() const { return written_ == read_; }
  /// Error of reading an array that does not exist between steps.
  [[nodiscard]] Error error_of_gradients() {
    const auto value = std::span(read_.front()).first(sizeof(float));
    return tests::error_of(
        [&] { records_->access({IoKind::read, 0, actors::StateKind::gradients, 0, value, [] {}}); });
  }

 private:
  void next(std::size_t a, std::size_t at, bool writes, const std::function<void()>& done) {
    const auto arrays = records_->arrays();
    if (a == arrays.size()) return done();
    auto& values = writes ? written_[a] : read_[a];
    if (at == values.size()) return next(a + 1, 0, writes, done);
    const DType dtype = dtype_of(arrays[a]);
    const std::size_t width = is_in_blocks(dtype) ? runtime::int8_block_bytes : size_of(dtype);  // smallest piece
    const std::size_t bytes = width * (1 + random_() % ((values.size() - at) / width));
    const auto over = [this, a, at, bytes, writes, done] { next(a, at + bytes, writes, done); };
    records_->access({writes ? IoKind::write : IoKind::read, arrays[a].unit, arrays[a].kind,
                      arrays[a].range.begin + runtime::elements_in(at, dtype), std::span(values).subspan(at, bytes),
                      over});
  }
  [[nodiscard]] DType dtype_of(const StateArray& array) const {
    return plan_.states->all()[array.unit].view(array.kind).dtype;
  }

  std::mt19937_64 random_;
  models::Architecture architecture_;
  actors::RankPlan plan_;
  runtime::Simulation messages_{1, {}};  // none are sent
  actors::RankResources rank_;
  std::unique_ptr<StateRecords> records_;
  std::vector<std::vector<std::byte>> written_, read_;  // by array
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
    if (random() % 2 == 0) options.tiers.rule = actors::UpdateRule::muon;
    options.tiers.optimizer = std::array{TierKind::device, TierKind::host, TierKind::nvme}[seed / 3 % 3];
    if (options.tiers.optimizer != TierKind::device && options.tiers.rule != actors::UpdateRule::muon)
      options.tiers.step = random() % 2 == 0 ? actors::StepLocation::device : actors::StepLocation::host;
    if (random() % 2 == 0) options.precision = {DType::bf16, DType::f32};
    options.tiers.moments = std::array{DType::f32, DType::bf16, DType::i8}[random() % 3];
    options.tiers.master = std::array{DType::f32, DType::bf16}[random() % 2];
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
