#include "models/core/filtered_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using models::FilteredSamples;
using models::SampleRange;

namespace {

/// Samples whose value is their number; targets are one more.
class Numbers final : public models::SampleSource {
 public:
  std::int64_t samples() const override { return 1000; }
  std::size_t input_bytes() const override { return sizeof(std::int64_t); }
  std::size_t target_bytes() const override { return sizeof(std::int64_t); }
  std::int64_t losses_per_sample() const override { return 1; }
  void read_input(std::int64_t n, std::byte* to) const override { std::memcpy(to, &n, sizeof n); }
  void read_target(std::int64_t n, std::byte* to) const override { read_input(n + 1, to); }
  void prefetch(std::int64_t n) const override { announced.push_back(n); }

  mutable std::vector<std::int64_t> announced;
};

using Read = void (models::SampleSource::*)(std::int64_t, int, std::byte*) const;
std::vector<std::int64_t> read(const FilteredSamples& kept, Read how, std::int64_t first, int count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  (kept.*how)(first, count, reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

}  // namespace

TEST_CASE("excluded samples are skipped, and the samples before them keep their numbers") {
  const Numbers all;
  FilteredSamples kept(all);
  kept.leave_out({4, 2});
  kept.leave_out({8, 3});
  CHECK(read(kept, &models::SampleSource::read_inputs, 0, 8) ==
        std::vector<std::int64_t>{0, 1, 2, 3, 6, 7, 11, 12});
  CHECK(read(kept, &models::SampleSource::read_targets, 3, 3) == std::vector<std::int64_t>{4, 7, 8});
  kept.prefetch(3);
  kept.prefetch(4);
  CHECK(all.announced == std::vector<std::int64_t>{3, 6});
}

TEST_CASE("after any ranges are excluded in any order, the others come once each and in order") {
  const Numbers all;
  for (const std::uint64_t seed : test::seeds(40)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    FilteredSamples kept(all);
    std::vector<bool> gone(200);
    for (int i = 0; i < 6; ++i) {
      const SampleRange range{static_cast<std::int64_t>(random() % 100), static_cast<std::int64_t>(random() % 12)};
      kept.leave_out(range);
      for (std::int64_t n = range.begin; n < range.begin + range.count; ++n)
        gone[static_cast<std::size_t>(n)] = true;
    }
    std::vector<std::int64_t> expected;
    for (std::int64_t n = 0; expected.size() < 80; ++n)
      if (!gone[static_cast<std::size_t>(n)]) expected.push_back(n);
    CHECK(read(kept, &models::SampleSource::read_inputs, 0, 80) == expected);
  }
}
