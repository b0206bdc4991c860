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
  void read_inputs(std::int64_t first, int count, std::byte* to) const override { read(first, count, to); }
  void read_targets(std::int64_t first, int count, std::byte* to) const override { read(first + 1, count, to); }
  void will_read(std::int64_t first, int count) const override { announced.push_back({first, count}); }

  mutable std::vector<SampleRange> announced;

 private:
  static void read(std::int64_t first, int count, std::byte* to) {
    for (std::int64_t n = first; n < first + count; ++n, to += sizeof n) std::memcpy(to, &n, sizeof n);
  }
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
  kept.will_read(3, 2);
  CHECK(all.announced == std::vector<SampleRange>{{3, 1}, {6, 1}});
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
    std::vector<std::int64_t> came;
    while (came.size() < expected.size()) {
      const auto most = static_cast<std::uint64_t>(expected.size() - came.size());
      const auto piece = read(kept, &models::SampleSource::read_inputs, static_cast<std::int64_t>(came.size()),
                              static_cast<int>(1 + random() % most));
      came.insert(came.end(), piece.begin(), piece.end());
    }
    CHECK(came == expected);
  }
}
