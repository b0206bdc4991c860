// Forward passes over the whole grid for evaluations and text samples, and an agreement on their results. It uses the
// training stage between steps and changes no parameters, gradients or states. Loop thread only.
#pragma once

#include "actors/base/consensus.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/pipeline/stage_actor.hpp"
#include "actors/rank/rank_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ranvier::actors {

class GridPass {
 public:
  /// Objects that passes use; all must outlive the GridPass.
  struct Parts {
    const RankContext* context = nullptr;
    const RankPlan* plan = nullptr;
    std::vector<StageActor::Resources> resources;  ///< by slice
    Loader::Places* places = nullptr;              ///< buffers for samples
    Consensus* consensus = nullptr;
    std::function<bool()> stop_pending;  ///< whether this rank has a stop request
  };

  /// `loss`: the row's loss, on its last stage. `numbers` are zero; at most one rank sets each.
  using Contribute = std::function<void(double loss, std::span<double> numbers)>;
  /// `stop`: any rank has a stop request.
  using Learned = std::function<void(std::span<const double> numbers, bool stop)>;

  /// `stride`: see Loader.
  GridPass(Parts parts, const models::SampleSource& source, std::int64_t stride = 0);

  /// Runs a batch with this row's samples. All ranks run the same batches in the same order; one at a time.
  void run(StageActor::Batch batch, std::size_t numbers, Contribute contribute, Learned learned);

  /// Correct predictions of the row: StageActor::correct().
  [[nodiscard]] double correct() const noexcept { return actor_.correct(); }

  [[nodiscard]] std::vector<Wait> waits() const { return actor_.waits(); }
  [[nodiscard]] std::string details() const { return actor_.details(); }

 private:
  Parts parts_;
  Loader loader_;
  StageActor actor_;
  std::vector<double> agreed_;  // the numbers, then the stop request
};

}  // namespace ranvier::actors
