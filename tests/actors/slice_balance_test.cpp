#include "actors/schedule/slice_balance.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::balance_slices;
using actors::SliceMap;
using models::LayerRange;

namespace {

/// Cost of the rank with the most work.
double max_of(const std::vector<double>& costs, const SliceMap& map, const std::vector<LayerRange>& slices) {
  std::vector<double> loads(static_cast<std::size_t>(map.stages), 0.0);
  for (std::size_t k = 0; k < slices.size(); ++k) {
    for (std::size_t l = slices[k].begin; l < slices[k].end; ++l)
      loads[static_cast<std::size_t>(map.stage_of(static_cast<int>(k)))] += costs[l];
  }
  return *std::max_element(loads.begin(), loads.end());
}

/// Minimum over all possible splits.
double min_of(const std::vector<double>& costs, const SliceMap& map) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<LayerRange> slices;
  const std::function<void(std::size_t)> cut = [&](std::size_t begin) {
    const std::size_t left = static_cast<std::size_t>(map.slices()) - slices.size();
    if (left == 0) {
      if (begin == costs.size()) least = std::min(least, max_of(costs, map, slices));
      return;
    }
    for (std::size_t end = begin + 1; end + left - 1 <= costs.size(); ++end) {
      slices.push_back({begin, end});
      cut(end);
      slices.pop_back();
    }
  };
  cut(0);
  return least;
}

/// An embedding, blocks, and a head with the cost of `head` blocks.
std::vector<double> gpt(int blocks, double head) {
  std::vector<double> costs(static_cast<std::size_t>(blocks) + 2, 1.0);
  costs.front() = 0.01;
  costs.back() = head;
  return costs;
}

void check_covers(const std::vector<LayerRange>& slices, std::size_t layers) {
  std::size_t begin = 0;
  for (const LayerRange& slice : slices) {
    CHECK(slice.begin == begin);
    CHECK(slice.end > slice.begin);
    begin = slice.end;
  }
  CHECK(begin == layers);
}

}  // namespace

TEST_CASE("ranks with several model chunks compute equally much, as far as undivided layers allow") {
  for (const SliceMap map : {SliceMap{2, 2}, {2, 3}, {3, 2}, {4, 2}}) {
    for (const int blocks : {6, 9, 12}) {
      for (const double head : {0.2, 1.7, 5.4}) {
        INFO("stages ", map.stages, ", chunks ", map.chunks, ", blocks ", blocks, ", head ", head);
        const auto costs = gpt(blocks, head);
        if (costs.size() < static_cast<std::size_t>(map.slices())) continue;
        const auto slices = balance_slices(costs, map);
        check_covers(slices, costs.size());
        CHECK(max_of(costs, map, slices) == doctest::Approx(min_of(costs, map)));
      }
    }
  }
}

TEST_CASE("chunks of layers of any cost are as good as chunks of one size, or better") {
  double worst = 1;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> costs(6 + random() % 6);
    for (double& cost : costs) cost = std::uniform_real_distribution(0.0, 2.0)(random);
    const SliceMap map{2 + static_cast<int>(random() % 2), 2};
    CAPTURE(seed);
    const auto slices = balance_slices(costs, map);
    check_covers(slices, costs.size());
    const double most = max_of(costs, map, slices);
    CHECK(most <= max_of(costs, map, models::balance(costs, map.slices())) * (1 + 1e-9));
    worst = std::max(worst, most / min_of(costs, map));
  }
  CAPTURE(worst);
  CHECK(worst < 1.3);
}

TEST_CASE("with one chunk per rank only the largest one matters, and too few layers are refused") {
  const auto costs = gpt(7, 2.0);
  const auto one = balance_slices(costs, {4, 1}), known = models::balance(costs, 4);
  for (std::size_t k = 0; k < 4; ++k) CHECK(one[k].end == known[k].end);
  CHECK_THROWS_AS(static_cast<void>(balance_slices(costs, {5, 2})), Error);
}
