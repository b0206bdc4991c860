#include "models/ops/cross_entropy.hpp"
#include "models/ops/target_rows.hpp"
#include "runtime/base/philox.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

using Tokens = std::vector<std::int32_t>;

/// Targets for at most `most` of each sample's positions.
Tokens some_targets(const TargetRows& shape, std::size_t most) {
  Tokens targets(shape.all(), no_target);
  const auto key = runtime::philox_key(9, runtime::RandomPurpose::test);
  for (std::size_t b = 0; b < shape.samples; ++b)
    for (std::uint32_t i = 0; i < (b == 1 ? most / 2 : most); ++i) {
      const auto bits = runtime::philox(key, {i, static_cast<std::uint32_t>(b), 0, 0});
      targets[b * shape.positions + bits[0] % shape.positions] = static_cast<std::int32_t>(bits[1] % 1000);
    }
  return targets;
}

}  // namespace

TEST_CASE("each sample's positions with a target are chosen in order, then the first ones without") {
  for (const TargetRows& shape : {TargetRows{3, 40, 7}, {2, 700, 100}, {1, 1, 1}, {2, 5, 5}, {0, 4, 2}}) {
    CAPTURE(shape.positions);
    const Tokens targets = some_targets(shape, shape.chosen);
    on_every_device([&](runtime::StreamView stream) {
      Tokens places(shape.rows(), -7), chosen(shape.rows(), -7);
      DeviceCopies at(stream);
      choose_rows(stream, shape, at(places), at(chosen), at(targets));
      at.fetch();
      for (std::size_t b = 0; b < shape.samples; ++b) {
        Tokens expected;
        for (const bool with : {true, false})
          for (std::size_t t = 0; t < shape.positions; ++t)
            if ((targets[b * shape.positions + t] != no_target) == with)
              expected.push_back(static_cast<std::int32_t>(t));
        for (std::size_t i = 0; i < shape.chosen; ++i) {
          CHECK(places[b * shape.chosen + i] == expected[i]);
          CHECK(chosen[b * shape.chosen + i] ==
                targets[b * shape.positions + static_cast<std::size_t>(expected[i])]);
        }
      }
    });
  }
}

TEST_CASE("rows of any even size are scattered and gathered, and other rows are zero") {
  const TargetRows shape{3, 37, 6};
  const Tokens targets = some_targets(shape, shape.chosen);
  for (const std::size_t row_bytes : {2, 6, 8, 48, 80}) {
    CAPTURE(row_bytes);
    on_every_device([&](runtime::StreamView stream) {
      std::vector<std::uint8_t> from(shape.all() * row_bytes), gathered(shape.rows() * row_bytes, 0xff),
          back(from.size(), 0xff);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
      Tokens places(shape.rows()), chosen(shape.rows());
      DeviceCopies at(stream);
      choose_rows(stream, shape, at(places), at(chosen), at(targets));
      gather_rows(stream, shape, at(gathered), at(std::as_const(from)), at(places), row_bytes);
      scatter_rows(stream, shape, at(back), at(gathered), at(places), row_bytes);
      at.fetch();
      std::vector<std::uint8_t> expected(from.size());
      std::size_t wrong = 0;
      for (std::size_t n = 0; n < shape.rows(); ++n) {
        const auto place = n / shape.chosen * shape.positions + static_cast<std::size_t>(places[n]);
        for (std::size_t i = 0; i < row_bytes; ++i) {
          wrong += gathered[n * row_bytes + i] != from[place * row_bytes + i] ? 1 : 0;
          expected[place * row_bytes + i] = from[place * row_bytes + i];
        }
      }
      CHECK(wrong == 0);
      CHECK(back == expected);
    });
  }
}

TEST_CASE("a sample with more targets than the capacity fails the stream with its number") {
  const TargetRows shape{2, 9, 3};
  Tokens targets(shape.all(), no_target);
  for (const std::size_t i : {0, 9, 11, 12, 17}) targets[i] = 5;
  on_one_device([&](runtime::StreamView stream) {
    Tokens places(shape.rows()), chosen(shape.rows());
    const auto choose = [&] {
      DeviceCopies at(stream);
      choose_rows(stream, shape, at(places), at(chosen), at(std::as_const(targets)));
      at.fetch();
    };
    CHECK_THROWS_WITH_AS(choose(), doctest::Contains("sample 1 of the microbatch has 4 targets"), Error);
  });
}
