// Brings the trained parameters to rank 0 unit by unit and piece by piece, so that no rank ever holds the
// whole model: of the ranks that hold a piece's master copy, the one in the first row, on the stage that comes first in
// the pipeline, sends it. Loop thread only.
#pragma once

#include "actors/rank/rank.hpp"

#include <functional>
#include <vector>

namespace ranvier::actors {

class WeightCollector {
 public:
  /// Rank 0 gets elements [begin, begin + values.size()) of a unit, units in the architecture's order and
  /// pieces ascending; the next piece comes after `stored` was called on the loop.
  using Sink = std::function<void(const models::UnitSpec& unit, std::size_t begin, std::span<const float> values,
                                  runtime::Handler stored)>;

  WeightCollector(runtime::Transport& transport, Rank& rank, const models::Architecture& architecture,
                  const runtime::GridShape& grid);

  /// On every rank; `sink` is called on rank 0 only. Transport and rank outlive the collector.
  void run(Sink sink, runtime::Handler done);

 private:
  struct Owned {
    const models::UnitSpec* unit = nullptr;
    int owner = 0;
    std::size_t begin = 0;  // elements of the unit
    std::size_t end = 0;
  };

  void next();
  void store(const models::UnitSpec& unit, std::size_t begin, std::span<const float> values);

  runtime::Transport* transport_;
  Rank* rank_;
  std::vector<models::UnitSpec> units_;
  std::vector<Owned> pieces_;
  std::vector<float> piece_;
  Sink sink_;
  runtime::Handler done_;
  std::size_t next_ = 0;   // piece
  std::size_t begin_ = 0;  // within it
};

}  // namespace ranvier::actors
