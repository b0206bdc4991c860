// Activation checkpoints that live off the device, in host memory or in files, between the passes of their microbatch
// (ZeRO-Infinity §5.1.2, Myelin §V-A). The device has a few places for them: a forward pass writes a checkpoint into
// one, the next segment reads it there, and it is stored meanwhile; a backward pass finds its checkpoints fetched
// ahead. Backward passes come in microbatch order and each needs its checkpoints from the back, so of any two
// checkpoints it is known which is needed first, whatever else messages decide: what is needed first is fetched
// first, and a place is taken from what is needed last. A checkpoint that is still in a place is not fetched.
//
// A forward pass that nothing follows (evaluation) stores nothing. Loop thread only.
#pragma once

#include "actors/pipeline/pass_resource.hpp"
#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::actors {

class ActivationCheckpoints final : public Actor, public PassResource {
 public:
  struct Plan {
    std::optional<offload::TierRegion> region;
    std::vector<std::size_t> offsets;  ///< of a slot's checkpoints in its part of the region
    std::size_t slot_bytes = 0;
  };
  /// Of one slice's checkpoints, which was made with TierOptions::checkpoint_places where they leave the device.
  [[nodiscard]] static Plan plan(PlanContext& planner, const models::Stage& stage);

  /// After Stage::bind.
  ActivationCheckpoints(const RankContext& context, const models::Stage& stage, const Plan& plan);

  [[nodiscard]] const char* name() const noexcept override { return "activation checkpoints"; }

  // Steps that read or write checkpoints are its uses. One is ready when what it reads is in a place, and one is free
  // for what it writes.
  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override {
    return stage_->checkpoint_read(step) || stage_->checkpoint_written(step);
  }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t use) const override;
  void when_ready(std::uint64_t use, runtime::Handler handler) override;
  void provide(std::uint64_t use, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t) override { return true; }
  void done(std::uint64_t use) override;

  /// Bytes that went to the tier and came back, so far.
  [[nodiscard]] std::size_t stored_bytes() const noexcept { return stored_bytes_; }
  [[nodiscard]] std::size_t fetched_bytes() const noexcept { return fetched_bytes_; }

 private:
  struct Use {
    std::uint64_t pass = 0;
    int samples = 0;
    bool training = true;
    bool backward = false;
    // Checkpoints, and whether this is the last use of the pass that reads or writes them.
    std::optional<std::size_t> read, written;
    bool reads_last = false, writes_last = false;
    std::size_t read_place = 0, written_place = 0;  // once queued
  };
  /// Of a slot: by slot, from the front.
  struct Checkpoint {
    std::uint64_t pass = 0;  // that wrote it; orders microbatches
    int samples = 0;
    bool live = false;    // a backward pass will read it
    bool stored = false;  // it is in the tier
    std::optional<std::size_t> place;
  };
  struct Place {
    std::optional<std::size_t> checkpoint;
    std::optional<std::size_t> transfer;  // of this checkpoint, from or to here
    bool here = false;                    // the checkpoint is, for what is queued on the stream from now on
    bool unsaved = false;                 // it was written, and waits to be stored
    bool held = false;                    // the pass that uses it goes on to
    int steps = 0;                        // on the stream, that use it
  };
  /// Smaller: needed earlier.
  using Turn = std::pair<std::uint64_t, std::size_t>;

  [[nodiscard]] Use& use_of(std::uint64_t use) { return uses_[use - first_use_]; }
  [[nodiscard]] const Use& use_of(std::uint64_t use) const { return uses_[use - first_use_]; }
  [[nodiscard]] Turn turn(std::size_t checkpoint) const;
  [[nodiscard]] std::size_t offset(std::size_t checkpoint) const;
  [[nodiscard]] std::span<std::byte> bytes(std::size_t place, std::size_t checkpoint) const;
  [[nodiscard]] bool idle(const Place& place) const;
  [[nodiscard]] std::optional<std::size_t> free_place(std::optional<Turn> before = std::nullopt) const;
  [[nodiscard]] std::size_t places_wanted_first() const;
  std::size_t take(std::size_t place, std::size_t checkpoint);
  void drop(std::size_t checkpoint);
  void bind(Use& use);
  void move();
  void store_written();
  void fetch_ahead();

  const RankContext* context_;
  const models::Stage* stage_;
  Plan plan_;
  std::vector<Checkpoint> checkpoints_;
  std::vector<Place> places_;
  std::deque<Use> uses_;         // that were announced and are not done
  std::uint64_t first_use_ = 0;  // number of uses_.front()
  std::uint64_t next_use_ = 0;   // to be queued
  std::uint64_t passes_ = 0;
  std::uint64_t waiting_use_ = 0;
  runtime::Handler waiting_;
  std::size_t stored_bytes_ = 0, fetched_bytes_ = 0;
};

}  // namespace ranvier::actors
