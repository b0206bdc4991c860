#include "models/core/initialize.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

UnitSpec unit() {
  return {"u",
          {{"u.weight", {301, 7}, {Initializer::Kind::normal, 0.02f}, true, 64 * 40},
           {"u.bias", {7}, {Initializer::Kind::zeros}},
           {"u.norm", {13}, {Initializer::Kind::ones}},
           {"u.wide", {50, 11}, {Initializer::Kind::uniform, 0.5f}}}};
}

std::vector<float> whole(const UnitSpec& spec, std::uint64_t seed) {
  std::vector<float> values(spec.elements(), NAN);
  initialize(spec, seed, 0, values.size(), values.data());
  return values;
}

}  // namespace

TEST_CASE("any piece of a unit has the values of the complete unit, on any number of threads") {
  const UnitSpec spec = unit();
  const auto expected = whole(spec, 5);
  runtime::ComputePool pool(3);
  for (const std::size_t begin : {0, 1, 63, 64, 2106, 2108, 2560, 2600})
    for (const std::size_t length : {0, 1, 5, 130, 500}) {
      CAPTURE_ALL(begin, length);
      std::vector<float> part(length, NAN), threaded(length, NAN);
      initialize(spec, 5, begin, begin + length, part.data());
      initialize(spec, 5, begin, begin + length, threaded.data(), &pool);
      CHECK(part == std::vector<float>(expected.begin() + begin, expected.begin() + begin + length));
      CHECK(threaded == part);
    }
}

TEST_CASE("gaps and padding are zero, biases zero, norms one") {
  const UnitSpec spec = unit();
  const auto values = whole(spec, 5);
  std::vector<int> kind(spec.elements(), 0);
  for (std::size_t p = 0; p < spec.parameters.size(); ++p)
    for (std::size_t i = 0; i < spec.parameters[p].elements(); ++i)
      kind[spec.offset(p) + i] = static_cast<int>(p) + 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (kind[i] == 0 || kind[i] == 2) CHECK(values[i] == 0.0f);
    if (kind[i] == 1) CHECK(values[i] != 0.0f);
    if (kind[i] == 3) CHECK(values[i] == 1.0f);
    if (kind[i] == 4) CHECK(std::abs(values[i]) <= 0.5f);
  }
}

TEST_CASE("normal values have the requested moments, and neighbors are independent") {
  const UnitSpec spec{"n", {{"n.weight", {1000, 1000}, {Initializer::Kind::normal, 0.02f}}}};
  const auto values = whole(spec, 6);
  double moment[5] = {};
  double correlation[4] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double z = values[i] / 0.02;
    double power = 1;
    for (double& m : moment) {
      m += power;
      power *= z;
    }
    for (std::size_t lag = 1; lag <= 3 && i >= lag; ++lag) correlation[lag] += z * values[i - lag] / 0.02;
  }
  const double n = moment[0];
  CHECK(std::abs(moment[1] / n) < 5e-3);
  CHECK(std::abs(moment[2] / n - 1) < 8e-3);
  CHECK(std::abs(moment[3] / n) < 2e-2);
  CHECK(std::abs(moment[4] / n - 3) < 6e-2);
  for (std::size_t lag = 1; lag <= 3; ++lag) CHECK(std::abs(correlation[lag] / n) < 5e-3);
}

TEST_CASE("uniform values fill their interval evenly") {
  const UnitSpec spec{"n", {{"n.weight", {100000}, {Initializer::Kind::uniform, 0.5f}}}};
  const auto values = whole(spec, 7);
  int bins[10] = {};
  for (const float value : values) ++bins[static_cast<int>((value + 0.5f) * 10)];
  for (const int bin : bins) CHECK(std::abs(bin - 10000) < 500);
}

TEST_CASE("seed and name change the values, the unit and its other parameters do not") {
  const UnitSpec spec = unit();
  UnitSpec renamed = spec;
  renamed.parameters[0].name = "v.weight";
  CHECK(whole(spec, 5) == whole(spec, 5));
  CHECK(whole(spec, 5)[0] != whole(spec, 6)[0]);
  CHECK(whole(spec, 5)[0] != whole(renamed, 5)[0]);
  const UnitSpec alone{"other", {spec.parameters[0]}};
  const auto a = whole(spec, 5), b = whole(alone, 5);
  CHECK(std::equal(b.begin(), b.end(), a.begin()));
}

TEST_CASE("tiles of a matrix have the values of the undivided matrix") {
  const Initializer normal{Initializer::Kind::normal, 0.02f};
  const auto matrix = whole({"m", {{"m.weight", {90, 203}, normal}}}, 5);
  for (const Tile& tile : {Tile{{90, 203}, 0, 0}, Tile{{90, 203}, 17, 0}, Tile{{90, 203}, 30, 101}})
    for (const std::size_t columns : {1, 64, 101}) {
      CAPTURE_ALL(tile.first_row, tile.first_column, columns);
      UnitSpec spec{"m.3",
                    {{"m.bias", {5}, normal}, {"m.weight", {60, columns}, normal, true, 70 * columns, tile}}};
      const auto values = whole(spec, 5);
      for (std::size_t row = 0; row < 60; ++row)
        for (std::size_t column = 0; column < columns; ++column)
          REQUIRE(values[spec.offset(1) + row * columns + column] ==
                  matrix[(tile.first_row + row) * 203 + tile.first_column + column]);
      for (std::size_t i = spec.offset(1) + 60 * columns; i < values.size(); ++i) REQUIRE(values[i] == 0.0f);
      std::vector<float> part(100);
      initialize(spec, 5, 40, 40 + std::min<std::size_t>(100, values.size() - 40), part.data());
      REQUIRE(std::equal(part.begin(), part.begin() + 60, values.begin() + 40));
    }
}
