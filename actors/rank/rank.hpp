// One rank of a job as a whole: what its parts share, the parts, and what follows from all of them.
//
//   Rank rank(loop, transport, device, {tokens, &validation}, plan_rank(architecture, tokens.sample_bytes(),
//   options, 0)); rank.load_weights(source);
//   rank.start({.step = [](const StepResult& result) { … }, .done = [] { … }});
//
// Loop, transport and device come from outside, so the same rank runs over MPI in a process of its own and beside
// others in a simulation. A new part is its own files and a line in the constructor. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/checkpoint/state_source.hpp"
#include "actors/pipeline/gradient_buffers.hpp"
#include "actors/rank/consensus.hpp"
#include "actors/rank/fill_state.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/rank/rank_plan.hpp"
#include "actors/rank/trainer.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::actors {

class Rank {
 public:
  /// Where samples come from.
  struct Samples {
    const models::SampleSource& training;
    const models::SampleSource* validation = nullptr;
  };

  /// Allocates what `plan` says and nothing later. All references outlive it. `consensus`: how it agrees with others,
  /// if not as usual.
  Rank(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, const Samples& samples,
       RankPlan plan, std::unique_ptr<Consensus> consensus = nullptr);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Fills the parameters; blocks. Before start(), which asks for master weights and what lives off the device.
  void load_weights(const models::UnitSource& weights);

  /// Instead of load_weights(): goes on from there. Each rank reads its own ranges only, some here, some in load(),
  /// until which `source` stays.
  void resume(StateSource& source);
  /// Fills what those two have left, of this rank alone, then calls `done` on the loop. Where the source throws, on the
  /// loop too, nothing is under way, and either may be called again, with another source.
  void load(runtime::Handler done);

  /// Trains all steps, or evaluates where there are none, then calls hooks.done. Calls load() if nobody has.
  void start(TrainerHooks hooks);

  /// Takes these while it trains, where it was planned with TrainerOptions::checkpoint_staging. Before start(); the
  /// same on all ranks.
  void add_checkpoints(CheckpointSeries series);

  /// Copies elements [begin, begin + out.size()) of the master weights of a unit of this stage, which lie in the part
  /// whose optimizer states this rank holds, or of the parameters of a frozen one that it holds; then calls `done` on
  /// the loop. After the training, one call at a time.
  void read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

  [[nodiscard]] Trainer& trainer() const noexcept { return *trainer_; }
  [[nodiscard]] const RankPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const RankContext& context() const noexcept { return resources_.context(); }
  [[nodiscard]] const Optimizer::Answers& answers() const noexcept { return optimizer_->answers(); }
  /// That steps have waited for buckets whose copies for checkpoints were not taken.
  [[nodiscard]] double seconds_waited_for_checkpoints() const {
    return snapshot_ == nullptr ? 0 : runtime::seconds(snapshot_->waited());
  }

  /// What all parts wait for from other ranks, for a report about a peer that is lost.
  [[nodiscard]] std::vector<Wait> waits() const;
  /// How far the own work of the part of this name has come; empty: nothing is known.
  [[nodiscard]] std::string details(std::string_view part) const;
  /// Ranks that this one exchanges messages with, whoever begins, ascending: those of the parts, and rank 0, which
  /// hears from everybody at the end.
  [[nodiscard]] std::vector<int> peers() const;

 private:
  /// A part that lives as long as the rank; those that others call are made first.
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

  void fill_parameters(const models::UnitSource& weights);
  void read_frozen(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);
  /// Fills what a training begins with of the optimizer's states: of state_array_names, those from `which` on.
  void fill_states(std::size_t which, runtime::Handler done);
  /// Of all parts.
  [[nodiscard]] std::vector<StateScalar> scalars() const;

  RankPlan plan_;
  models::FilteredSamples samples_;  // of the training
  RankResources resources_;
  Loader::Places load_places_;
  std::vector<std::unique_ptr<Actor>> parts_;
  ParameterRecords* parameter_records_ = nullptr;  // null: all parameters are on the device
  ParameterStore* parameters_ = nullptr;
  std::optional<GradientBuffers> gradient_buffers_;
  Optimizer* optimizer_ = nullptr;
  Snapshot* snapshot_ = nullptr;          // null: no checkpoints are taken
  Checkpointer* checkpointer_ = nullptr;  // likewise
  Trainer* trainer_ = nullptr;
  runtime::Buffer frozen_;            // pinned, on the way to read_weights()
  models::UnitSource weights_;        // until load() is done
  StateSource* source_ = nullptr;     // likewise; null: the training begins
  bool was_resumed_ = false;          // from a source, which may not have been the last
  std::vector<StateScalar> scalars_;  // of the source that was loaded
};

}  // namespace ranvier::actors
