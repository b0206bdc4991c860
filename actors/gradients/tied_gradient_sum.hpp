// Sums a tied unit's gradients over its two uses (two layers or two stages) after the last microbatch. Loop thread
// only.
#pragma once

#include "actors/base/actor.hpp"
#include "runtime/liveness/pending_work.hpp"

#include <vector>

namespace ranvier::actors {

class TiedGradientSum {
 public:
  virtual ~TiedGradientSum() = default;

  /// Adds the uses into use 0; `done` runs on the loop, after this returned. This stage's uses must be complete.
  virtual void run(runtime::Handler done) = 0;
  [[nodiscard]] virtual std::vector<Wait> waits() const = 0;
};

}  // namespace ranvier::actors
