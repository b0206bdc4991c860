// The step that all ranks agreed on: AdamW on the part of each unit whose optimizer states this rank holds, then the
// refreshed parameters to exactly the ranks that need them (PaRO §3.4, update phase), neighbouring small units
// together. Units go from the front, so that the next batch can begin with the first layers while later ones are
// still under way. Where optimizer states are shared out less than gradients, those are gathered first.
// Loop thread only.
#pragma once

#include "actors/hop_pipeline.hpp"
#include "actors/parameter_store.hpp"
#include "actors/unit_states.hpp"
#include "runtime/trace.hpp"

#include <deque>
#include <string>
#include <vector>

namespace ranvier::actors {

class Optimizer {
 public:
  struct Options {
    std::size_t bundle_bytes = 1 << 20;  ///< neighbouring units up to so many bytes of parameters go as one operation
  };
  struct Memory {
    std::vector<runtime::MemoryId> gradient_places;  ///< that whole gradients are gathered to, each for any bundle
    HopPipeline::Memory gradient, refresh;
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const ColumnOptions& column,
                                   const collectives::ShardFlow& flow, const Options& options,
                                   runtime::MemoryPlan& plan);

  /// All outlive the optimizer.
  Optimizer(runtime::EventLoop& loop, collectives::Executor& executor, runtime::StreamView compute,
            const UnitStates& states, const ColumnOptions& column, const collectives::ShardFlow& flow,
            ParameterStore& parameters, runtime::Trace& trace, const Options& options, const Memory& memory,
            const runtime::Arena& arena);

  /// `adamw` as it is for this step. `done` runs once all parameters of this rank are as the step leaves them; the
  /// next batch may begin before.
  void step(const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// The step does not count: parameters stay.
  void skip();

  /// Whether the compute stream has work of a step.
  [[nodiscard]] bool computing() const noexcept { return updates_ > 0; }

  /// What is under way, for a report about a peer that is lost.
  [[nodiscard]] std::vector<std::string> running() const;

 private:
  void begin_bundles();
  void update(std::size_t bundle, std::byte* gathered);
  void refresh(std::size_t bundle);
  [[nodiscard]] std::string names(std::size_t bundle) const;

  runtime::EventLoop* loop_;
  runtime::StreamView compute_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  ParameterStore* parameters_;
  runtime::Trace* trace_;
  HopPipeline gradient_, refresh_;
  bool gathers_gradients_;
  bool refreshes_;
  std::vector<std::vector<std::size_t>> bundles_;
  std::vector<std::byte*> free_places_;

  runtime::AdamWOptions adamw_;
  runtime::Handler done_;
  std::size_t next_bundle_ = 0;
  std::size_t missing_ = 0;
  int updates_ = 0;  // on the compute stream
};

}  // namespace ranvier::actors
