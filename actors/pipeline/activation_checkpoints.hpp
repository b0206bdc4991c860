// Activation checkpoints in host memory or files between the passes of their microbatch (ZeRO-Infinity §5.1.2, Myelin
// §V-A). A forward pass writes a checkpoint to one of a few device buffers, from where it is stored. Before the
// backward pass it is prefetched, unless it is still in a buffer. Backward passes run in microbatch order and need
// checkpoints from the back, so the order of accesses is known. The earliest access is fetched first, and the latest
// one gives up its buffer. Evaluations store nothing. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/schedule/pass_resource.hpp"
#include "actors/states/model_share.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::actors {

class ActivationCheckpoints final : public Actor, public PassResource {
 public:
  struct Plan {
    std::optional<offload::TierRegion> region;
    std::vector<std::size_t> offsets;  ///< offsets of a slot's checkpoints in its part of the region
    std::size_t slot_bytes = 0;
  };
  /// Plans the checkpoints of a slice. Offloaded ones need a stage made with TierOptions::checkpoint_places.
  [[nodiscard]] static Plan plan(PlanContext& planner, const models::Stage& stage);

  /// Call it after Stage::bind.
  ActivationCheckpoints(const RankContext& context, const models::Stage& stage, const Plan& plan);

  [[nodiscard]] const char* name() const noexcept override { return "activation checkpoints"; }

  // Accesses are steps that read or write checkpoints. One is ready when its input is in a buffer and a buffer for its
  // output is free.
  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override {
    return stage_->checkpoint_read(step) || stage_->checkpoint_written(step);
  }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t use) const override;
  void when_ready(std::uint64_t use, runtime::Handler handler) override;
  void provide(std::uint64_t use, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t) override { return true; }
  void done(std::uint64_t use) override;

 private:
  struct Use {
    std::uint64_t pass = 0;
    int samples = 0;
    bool training = true;
    bool backward = false;
    // Checkpoints, and whether this is the last access of the pass that reads or writes them.
    std::optional<std::size_t> read, written;
    bool reads_last = false, writes_last = false;
    std::size_t read_place = 0, written_place = 0;  // once queued
  };
  /// A checkpoint; indexed by slot, then from the front.
  struct Checkpoint {
    std::uint64_t pass = 0;  // number of the pass that wrote it; orders microbatches
    int samples = 0;
    bool live = false;    // a backward pass will read it
    bool stored = false;  // the tier has a copy
    std::optional<std::size_t> place;
  };
  struct Place {
    std::optional<std::size_t> checkpoint;
    std::optional<std::size_t> transfer;  // checkpoint that is moved from or to this buffer
    bool here = false;                    // work queued from now on may read the checkpoint
    bool unsaved = false;                 // written, but not stored yet
    bool held = false;                    // the current pass will access it again
    int steps = 0;                        // queued steps that access it
  };
  /// Order of accesses: smaller is earlier.
  using Turn = std::pair<std::uint64_t, std::size_t>;

  [[nodiscard]] Turn turn(std::size_t checkpoint) const;
  [[nodiscard]] std::size_t offset(std::size_t checkpoint) const;
  [[nodiscard]] std::span<std::byte> bytes(std::size_t place, std::size_t checkpoint) const;
  [[nodiscard]] bool idle(const Place& place) const;
  [[nodiscard]] std::optional<std::size_t> free_place(std::optional<Turn> before = std::nullopt) const;
  [[nodiscard]] std::size_t places_wanted_first() const;
  void take(std::size_t place, std::size_t checkpoint);
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
  Accesses<Use> uses_;
  std::uint64_t next_use_ = 0;  // to be queued
  std::uint64_t passes_ = 0;
};

}  // namespace ranvier::actors
