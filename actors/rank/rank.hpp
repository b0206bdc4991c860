// One rank of a job: creates, connects and owns its actors and their shared resources.
//
//   Rank rank(loop, transport, device, {tokens, &validation}, plan_rank(architecture, tokens.sample_bytes(),
//   options, 0)); rank.load_weights(source);
//   rank.start({.step = [](const StepResult& result) { … }, .done = [] { … }});
//
// Loop, transport and device are arguments, so the same class runs over MPI, or with other ranks in a simulation. A new
// actor needs its own files and a line in the constructor. Loop thread only.
#pragma once

#include "actors/base/consensus.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/checkpoint/checkpointer.hpp"
#include "actors/checkpoint/state_source.hpp"
#include "actors/rank/rank_plan.hpp"
#include "actors/rank/trainer.hpp"
#include "models/core/unit.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::actors {

class Rank {
 public:
  /// Sources of samples.
  struct Samples {
    const models::SampleSource& training;
    const models::SampleSource* validation = nullptr;
  };

  /// Allocates all memory of `plan`; nothing is allocated later. All references must outlive it. `consensus`: null for
  /// the usual one.
  Rank(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, const Samples& samples,
       RankPlan plan, std::unique_ptr<Consensus> consensus = nullptr);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Fills the parameters on the device; blocks. `weights` must stay usable until load() is done, which reads master
  /// weights and offloaded parameters.
  void load_weights(const models::UnitSource& weights);

  /// Alternative to load_weights(): resumes from a checkpoint. Each rank reads only its own ranges. `source` must stay
  /// until load() is done, which reads the rest.
  void resume(StateSource& source);
  /// Loads all remaining states of this rank, then calls `done` on the loop. If the source throws, no work is pending,
  /// and load_weights() or resume() may be called again with another source.
  void load(runtime::Handler done);

  /// Trains all steps, or evaluates if there are none, then calls hooks.done. Calls load() first if needed.
  void start(TrainerHooks hooks);

  /// Adds a series of checkpoints. Needs TrainerOptions::checkpoint_staging. Call it before start(), identically on all
  /// ranks.
  void add_checkpoints(CheckpointSeries series);

  /// Copies elements starting at `begin` of a unit's master weights, or of a frozen unit's parameters, then calls
  /// `done` on the loop. This rank must hold these elements. After training, one call at a time.
  void read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

  [[nodiscard]] Trainer& trainer() const noexcept { return *trainer_; }
  [[nodiscard]] const RankPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const RankContext& context() const noexcept { return resources_.context(); }
  [[nodiscard]] const Optimizer::Answers& answers() const noexcept { return optimizer_->answers(); }
  /// Total time that checkpoints stalled the optimizer.
  [[nodiscard]] double seconds_waited_for_checkpoints() const {
    return snapshot_ == nullptr ? 0 : runtime::seconds(snapshot_->waited());
  }

  /// Pending waits of all actors, for reports.
  [[nodiscard]] std::vector<Wait> waits() const;
  /// Progress of an actor's work; empty: unknown.
  [[nodiscard]] std::string details(std::string_view part) const;
  /// Ranks that exchange messages with this one, ascending: peers of all actors, and rank 0, which collects data at the
  /// end.
  [[nodiscard]] std::vector<int> peers() const;

 private:
  /// Creates an actor that the rank owns. Actors that others call are created first.
  template <class P, class... Arguments>
  P& add(Arguments&&... arguments) {
    return take(std::make_unique<P>(std::forward<Arguments>(arguments)...));
  }
  template <class P>
  P& take(std::unique_ptr<P> part) {
    P& made = *part;
    parts_.push_back(std::move(part));
    return made;
  }

  void fill_parameters(models::UnitSource weights);
  /// Initializes the optimizer's states: optimizer_states starting at `which`.
  void fill_states(std::size_t which, runtime::Handler done);
  struct Filling;
  void fill_next(const std::shared_ptr<Filling>& filling);
  /// Scalars of all actors.
  [[nodiscard]] std::vector<StateScalar> scalars() const;

  RankPlan plan_;
  models::FilteredSamples samples_;  // training samples
  RankResources resources_;
  Loader::Places load_places_;
  std::vector<std::unique_ptr<Actor>> parts_;
  OffloadedParameters* offloaded_parameters_ = nullptr;  // null: all shards are on the device
  ParameterStore* parameters_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  Snapshot* snapshot_ = nullptr;          // null: no checkpoints
  Checkpointer* checkpointer_ = nullptr;  // null: no checkpoints
  Trainer* trainer_ = nullptr;
  runtime::Buffer weight_staging_;    // pinned staging of read_weights()
  models::UnitSource weights_;        // until load() is done
  StateSource* source_ = nullptr;     // until load() is done; null: new run
  bool was_resumed_ = false;          // resume() was called, perhaps before another source
  std::vector<StateScalar> scalars_;  // scalars of the loaded source
};

}  // namespace ranvier::actors
