// The sum of a unit's two uses, once all microbatches are in both: of two layers of this stage, or of this stage and
// another one, which then both add the same two numbers. Loop thread only.
#pragma once

#include "actors/rank/actor.hpp"
#include "runtime/pending_work.hpp"

#include <vector>

namespace ranvier::actors {

class TiedGradientSum {
 public:
  virtual ~TiedGradientSum() = default;

  /// Leaves the sum with use 0; `done` runs on the loop, after this returned. Both uses are complete on this stage.
  virtual void run(runtime::Handler done) = 0;
  [[nodiscard]] virtual std::vector<Wait> waits() const = 0;
};

}  // namespace ranvier::actors
