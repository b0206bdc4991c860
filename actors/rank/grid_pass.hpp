// Forward passes of a batch over the whole grid that train nothing (evaluation, a sample of text), and what all ranks
// then learn alike: each contributes numbers that it alone knows. It uses the stage that trains, between steps, and
// leaves parameters, gradients and states alone. Loop thread only.
#pragma once

#include "actors/rank/consensus.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/pipeline/stage_actor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::actors {

class GridPass {
 public:
  /// What passes are made with. All outlive them.
  struct Parts {
    const RankContext* context = nullptr;
    const ModelShare* share = nullptr;
    const StageActor::Plan* passes = nullptr;
    std::vector<StageActor::Resources> resources;  ///< by slice
    Loader::Places* places = nullptr;              ///< of samples
    Consensus* consensus = nullptr;
    std::function<bool()> stop_pending;  ///< this rank
  };

  /// `loss` is the row's, on its last stage. Numbers are zeros at first, and one rank at most sets each.
  using Contribute = std::function<void(double loss, std::span<double> numbers)>;
  /// `stop`: some rank wishes to.
  using Learned = std::function<void(std::span<const double> numbers, bool stop)>;

  /// `stride`: see Loader.
  GridPass(Parts parts, const models::SampleSource& source, std::int64_t stride = 0);

  /// All ranks run the same batches in the same order, each with its row's samples; one at a time.
  void run(StageActor::Batch batch, std::size_t numbers, Contribute contribute, Learned learned);

  /// Of the row, for whoever contributes: StageActor::hits().
  [[nodiscard]] double hits() const noexcept { return actor_.hits(); }

  [[nodiscard]] std::vector<Wait> waits() const { return actor_.waits(); }
  [[nodiscard]] std::string details() const { return actor_.details(); }

 private:
  Parts parts_;
  Loader loader_;
  StageActor actor_;
  std::vector<double> agreed_;  // the numbers, and the wish to stop
};

}  // namespace ranvier::actors
