// The data-parallel phase (Myelin §III-B, §IV-B), unit by unit from the back and overlapped with the backward
// passes of earlier layers: as soon as a unit's gradients are complete for the batch, its uses are summed,
// the column's ranks reduce it with a ring in chunks, and its sum of squares is taken for the global norm.
//
// A tied unit on two stages (embedding and head) is exchanged between them inside each row first; both add
// the same two numbers and both columns reduce alike, so the copies stay equal to the bit.
// Loop thread only.
#pragma once

#include "actors/unit_states.hpp"
#include "collectives/executor.hpp"
#include "runtime/trace.hpp"
#include "runtime/transport.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class GradientSync {
 public:
  struct Options {
    int row = 0;                     ///< this rank's index in the column
    std::vector<int> column;         ///< MPI ranks that replicate this stage, in row order
    /// By unit of the stage: the rank of this row that holds the unit too.
    std::vector<std::optional<int>> partners;
    std::size_t chunk_bytes = 1 << 20;  ///< of one message
    int depth = 4;                      ///< messages in flight of one unit
  };

  /// What the phase needs beside the gradients themselves.
  struct Memory {
    runtime::MemoryId reduce_staging, exchange_staging, squares;
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const Options& options, runtime::MemoryPlan& plan);

  GradientSync(runtime::EventLoop& loop, runtime::Transport& transport, collectives::Executor& executor,
               runtime::StreamView compute, const UnitStates& states, const models::Stage& stage,
               runtime::Trace& trace, Options options, Memory memory, const runtime::Arena& arena);

  /// Before a batch; `done` runs when all units are reduced and their sums of squares are there.
  void start(runtime::Handler done);

  /// The stage's layer has its gradients complete; on the loop, after the work that made them.
  void layer_ready(std::size_t layer);

  /// Σ gradient² of a unit over the whole batch, after `done`.
  [[nodiscard]] double sum_of_squares(std::size_t unit) const { return *squares_[unit]; }

 private:
  using Plans = std::shared_ptr<const std::vector<collectives::Script>>;
  struct Unit {
    Plans plans;  ///< one per chunk; shared by units of one size
    int uses_missing = 0;
    bool ready = false;  ///< for the column
    std::size_t exchanges_begun = 0;
    std::size_t exchanges_missing = 0;
    std::uint32_t first_tag = 0;
  };

  void uses_complete(std::size_t unit);
  void exchange_next(std::size_t unit, std::size_t staging);
  void summed(std::size_t unit);
  void reduce_ready();
  void reduced(std::size_t unit);
  /// Calls `next` on the loop after what the compute stream has queued.
  void after_compute(runtime::Handler next);

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  collectives::Executor* executor_;
  runtime::StreamView compute_;
  const UnitStates* states_;
  const models::Stage* stage_;
  runtime::Trace* trace_;
  Options options_;
  Memory memory_;
  std::size_t exchange_elements_ = 0;
  std::vector<std::byte*> free_staging_;
  std::vector<std::byte*> exchange_staging_;
  std::vector<double*> squares_;
  std::vector<Unit> units_;
  // Units are reduced in this order on every row, whatever is ready first: from the back, tied ones last.
  std::vector<std::size_t> order_;
  std::size_t next_in_order_ = 0;
  std::size_t missing_ = 0;
  runtime::Handler done_;
};

}  // namespace ranvier::actors
