// Parameters off the device between their uses.
#include "actors/base/rank_context.hpp"
#include "actors/states/offloaded_parameters.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

#include <deque>

using namespace ranvier;
using namespace ranvier::tests;
using actors::TierKind;

namespace {

using Shard = actors::OffloadedParameters::Shard;

/// Offloaded parameters of one rank, with known contents: each element's value encodes unit, element and version.
class Driven {
 public:
  Driven(TierKind kind, TierKind secondary, const char* sharding, int prefetch, std::uint64_t seed)
      : device_(runtime::make_cpu_device({})), architecture_(models::make_gpt(small_gpt())), random_(seed) {
    auto options = small_run({2, 4}, sharding);
    options.group_size = 2;
    options.prefetch = prefetch;
    options.tiers = {.parameters = kind, .secondary = secondary, .bucket_elements = 1100};
    plan_ = plan_of(architecture_, options, 1);
    REQUIRE((plan_.offloaded_parameters.answers.slots > 0) == (kind == TierKind::nvme));
    resources_.emplace(loop_, simulation_.transport(1), *device_, plan_.memory, plan_.tiers,
                       offload::FileOptions{.directories = {folder_.path()}});
    records_.emplace(resources_->context(), plan_, plan_.offloaded_parameters);
    for (const actors::UnitState& unit : units()) {
      if (unit.secondary) has_secondary_ = true;
      written_.push_back(-1);
    }
  }

  void run() {
    loop_.post([this] {
      const auto weights = [](const models::UnitSpec& spec, std::size_t begin, std::span<float> out) {
        for (std::size_t e = 0; e < out.size(); ++e) out[e] = value(spec, begin + e, 0);
      };
      records_->load(weights, [this] { version(0); });
    });
    loop_.run();
    CHECK(fetched_ > 100);
    CHECK(lent_ > 50);
  }

 private:
  static constexpr int versions = 4;

  static float value(const models::UnitSpec& spec, std::size_t element, int version) {
    if (element >= spec.elements()) return 0;
    return static_cast<float>((spec.elements() * 31 + element * 7) % 100003 + static_cast<std::size_t>(version));
  }
  const std::vector<actors::UnitState>& units() const { return plan_.states->all(); }
  float expected(Shard shard, std::size_t element) const {
    return value(*units()[shard.unit].spec, element, version_);
  }
  const actors::UnitView& part(Shard shard) const {
    return shard.secondary ? *units()[shard.unit].secondary : units()[shard.unit].parameters;
  }

  /// Units become readable one by one while fetches of the passes are announced.
  void version(int number) {
    version_ = number;
    if (number == versions) return loop_.stop();
    for (std::size_t u = 0; u < units().size(); ++u) store(u);
    for (int i = 0; i < 30; ++i) {
      const Shard shard{random_() % units().size(), has_secondary_ && random_() % 2 == 0};
      records_->announce(shard);
      queue_.push_back(shard);
    }
    go_on();
  }

  void store(std::size_t u) {
    const auto stored = [this, u] {
      written_[u] = version_;
      go_on();
    };
    const auto missing = std::make_shared<std::size_t>(0);
    const auto one = [missing, stored] {
      if (--*missing == 0) stored();
    };
    const actors::UnitState& unit = units()[u];
    if (unit.secondary) {
      ++*missing;
      records_->store_from({u, true}, write(u, {{0, unit.elements}}), one);
    }
    if (version_ == 0) {
      ++*missing;
      return loop_.post(one);
    }
    for (std::size_t bucket = 0; bucket < unit.cut.buckets(); ++bucket) {
      ++*missing;
      records_->store(u, bucket, write(u, unit.cut.runs(unit.parameters.range, bucket)), one);
    }
  }
  /// Memory with those elements one after another.
  std::byte* write(std::size_t u, const std::vector<collectives::Range>& runs) {
    std::vector<float>& values = memory_.emplace_back();
    for (const auto& run : runs) {
      for (std::size_t e = 0; e < run.count; ++e) values.push_back(expected({u, false}, run.begin + e));
    }
    return reinterpret_cast<std::byte*>(values.data());
  }

  bool may_be_read(Shard shard) const { return written_[shard.unit] == version_; }

  void go_on() {
    while (!queue_.empty() && under_way_ < 3 && may_be_read(queue_.front())) {
      const Shard shard = queue_.front();
      queue_.pop_front();
      fetch(shard);
      if (random_() % 2 == 0) lend(shard);
    }
    records_->read_ahead([this](Shard shard) { return may_be_read(shard); });
    if (!queue_.empty() || under_way_ > 0) return;
    memory_.clear();
    version(version_ + 1);
  }

  void fetch(Shard shard) {
    ++under_way_;
    std::vector<float>& whole = memory_.emplace_back(units()[shard.unit].elements, -1.0f);
    records_->fetch(shard, reinterpret_cast<std::byte*>(whole.data()), [this, shard, &whole] {
      const auto range = part(shard).range;
      bool same = true;
      for (std::size_t e = 0; e < whole.size(); ++e) {
        const bool own = range.begin <= e && e < range.begin + range.count;
        same = same && whole[e] == (own ? expected(shard, e) : -1.0f);
      }
      CHECK(same);
      ++fetched_;
      --under_way_;
      go_on();
    });
  }

  /// Several ranks request the unit at about the same time.
  void lend(Shard shard) {
    const int ranks = 1 + static_cast<int>(random_() % 3);
    for (int r = 0; r < ranks; ++r) {
      ++under_way_;
      records_->lend({shard}, static_cast<std::uint64_t>(version_),
                     [this, shard](std::span<const runtime::ConstBytes> ranges, runtime::Handler sent) {
                       // A send takes a while.
                       std::vector<runtime::ConstBytes> kept(ranges.begin(), ranges.end());
                       loop_.after(std::chrono::microseconds(random_() % 300), [this, shard, kept, sent] {
                         std::size_t element = part(shard).range.begin;
                         bool same = true;
                         for (const auto& range : kept) {
                           for (std::size_t at = 0; at < range.size(); at += sizeof(float), ++element) {
                             float found = 0;
                             std::memcpy(&found, range.data() + at, sizeof found);
                             same = same && found == expected(shard, element);
                           }
                         }
                         CHECK(same);
                         CHECK(element == part(shard).range.begin + part(shard).range.count);
                         sent();
                         ++lent_;
                         --under_way_;
                         go_on();
                       });
                     });
    }
  }

  TemporaryFolder folder_;
  runtime::AsioLoop loop_;
  std::unique_ptr<runtime::Device> device_;
  runtime::Simulation simulation_{2, {}};  // for its transport, which is not used
  models::Architecture architecture_;
  actors::RankPlan plan_;
  std::optional<actors::RankResources> resources_;
  std::optional<actors::OffloadedParameters> records_;
  std::mt19937_64 random_;
  bool has_secondary_ = false;
  int version_ = 0;
  std::vector<int> written_;  // version, by unit
  std::deque<Shard> queue_;   // announced, not requested yet
  std::deque<std::vector<float>> memory_;
  int under_way_ = 0, fetched_ = 0, lent_ = 0;
};

}  // namespace

TEST_CASE("offloaded parameters fetch and lend what was stored last, in any order of replies, prefetched or not") {
  tests::Share share(1, 5);
  const std::uint64_t seed = test::random_seed();
  CAPTURE(seed);
  struct Case {
    TierKind kind, secondary;
    const char* sharding;
  };
  for (const auto& [kind, secondary, sharding] : {Case{TierKind::host, TierKind::host, "zero3"},
                                                  {TierKind::host, TierKind::host, "mics"},
                                                  {TierKind::host, TierKind::host, "zero++"},
                                                  {TierKind::nvme, TierKind::nvme, "zero3"},
                                                  {TierKind::nvme, TierKind::nvme, "mics"},
                                                  {TierKind::nvme, TierKind::nvme, "zero++"},
                                                  {TierKind::nvme, TierKind::host, "zero++"}}) {
    for (const int prefetch : {0, 1, 3}) {
      if (!share.takes()) continue;
      INFO("sharding ", std::string(sharding), ", prefetch ", prefetch, ", secondary ",
           offload::to_string(secondary));
      Driven(kind, secondary, sharding, prefetch, seed).run();
    }
  }
}

TEST_CASE("unsharded parameters off the device take only the device memory of a few layers' buffers") {
  auto gpt = small_gpt(12);
  gpt.vocab_size = 11;  // the blocks are the largest units
  using runtime::MemoryKind;
  using runtime::MemorySpace;
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    gpt.precision = {dtype, runtime::DType::f32};
    const auto architecture = models::make_gpt(gpt);
    for (const TierKind kind : {TierKind::host, TierKind::nvme}) {
      for (const int prefetch : {0, 2}) {
        auto options = small_run();
        options.precision = {dtype, runtime::DType::f32};
        options.prefetch = prefetch;
        const auto on_device = plan_of(architecture, options, 0);
        options.tiers.parameters = kind;
        const auto plan = plan_of(architecture, options, 0);
        CHECK(plan.memory.bytes(MemorySpace::device, MemoryKind::parameters) == 0);
        const std::size_t parameters = on_device.memory.bytes(MemorySpace::device, MemoryKind::parameters);
        const auto tier = plan.tiers.bytes(kind);
        CHECK(tier >= parameters);
        CHECK(tier < parameters + plan.states->all().size() * 4096);
        std::size_t places = 0, blocks = 0;
        for (const auto& item : plan.memory.items()) {
          const bool place = item.name.starts_with("gathered units");
          if (place) places += item.slot_bytes * item.slots;
          if (place) blocks = std::max(blocks, item.slots);
        }
        CHECK(blocks == static_cast<std::size_t>(1 + prefetch));
        CHECK(places < parameters * static_cast<std::size_t>(2 + prefetch) / 12);
        const auto optimizer = plan.memory.bytes(MemorySpace::device, MemoryKind::optimizer);
        const auto of_device = on_device.memory.bytes(MemorySpace::device, MemoryKind::optimizer);
        CHECK(optimizer == (dtype == runtime::DType::f32 ? of_device / 2 * 3 : of_device));
      }
    }
  }
}
