#include "runtime/base/philox.hpp"
#include "tests/test.hpp"

using namespace ranvier::runtime;

TEST_CASE("Philox4x32-10 gives the published numbers") {  // Random123, kat_vectors
  CHECK(philox({0, 0}, {0, 0, 0, 0}) == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("keys differ by seed and purpose") {
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32})
    for (const RandomPurpose purpose :
         {RandomPurpose::initial_weights, RandomPurpose::dropout, RandomPurpose::sample_order,
          RandomPurpose::sampling, RandomPurpose::test}) {
      const PhiloxKey key = philox_key(seed, purpose);
      keys.insert({key.low, key.high});
    }
  CHECK(keys.size() == 15);
}

TEST_CASE("uniform numbers are between 0 and 1 and evenly distributed") {
  CHECK(uniform(0) == 0.0f);
  CHECK(uniform(0xffffffff) < 1.0f);
  const PhiloxKey key = philox_key(5, RandomPurpose::test);
  double sum = 0;
  constexpr std::uint32_t draws = 20000;
  for (std::uint32_t i = 0; i < draws; ++i)
    for (const std::uint32_t bits : philox(key, {i, 0, 0, 0})) sum += uniform(bits);
  CHECK(sum / (4 * draws) == doctest::Approx(0.5).epsilon(0.01));
}
