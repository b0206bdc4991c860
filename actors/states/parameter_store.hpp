// Parameters as passes need them: whole, in the run's dtype, of this batch. Where a rank holds a piece only, a unit is
// gathered into a place just before its use and released after it, the next ones while this one computes
// (ZeRO-Infinity §6.2, §7.1; MiCS §4); a unit that the optimizer has not refreshed yet is waited for. Where
// parameters live off the device (parameter_records.hpp), this rank's piece comes to its place from there, whole
// units too.
//
// A pass announces its uses, which decides at once which unit goes where (BufferSchedule). How a unit comes:
//
//   collectives   where all rows of the column compute in the same order: hop by hop, units of a step as one operation
//   pulls         where messages decide what a stage computes next, and rows differ (piece_pulls.hpp)
//
// Loop thread only.
#pragma once

#include "actors/exchange/hop_pipeline.hpp"
#include "actors/pipeline/pass_resource.hpp"
#include "actors/states/parameter_records.hpp"
#include "actors/states/piece_pulls.hpp"
#include "actors/states/buffer_schedule.hpp"
#include "actors/states/unit_pieces.hpp"
#include "runtime/staged_transport.hpp"
#include "runtime/trace.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

class ParameterStore final : public Actor, public PassResource {
 public:
  struct Options {
    int prefetch = 2;    ///< layers, or parts of them, gathered ahead of the one that computes; 0: none
    bool pulls = false;  ///< rows differ in what they compute next
    bool reuse = true;   ///< a unit that is still in its place is not gathered again, as the papers count it is
  };

  struct Plan {
    Options options;
    BufferClasses classes;                  ///< none where nothing is gathered
    std::vector<runtime::MemoryId> places;  ///< by class
    /// What goes through the same hops: all units, or trained ones and frozen ones.
    struct Way {
      HopPipeline::Plan forward, backward;
    };
    std::vector<Way> ways;
    std::vector<std::size_t> way_of;  ///< by unit
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  /// The places of units of so many elements on a stage; 0: the unit is not gathered.
  [[nodiscard]] static BufferClasses classes_of(const models::StageSlices& stage,
                                                const std::vector<std::size_t>& elements, const Options& options);

  /// What pulls send and receive at a time; nothing where there are none.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const ModelShare& share,
                                                                            const Plan& plan);

  /// `records` is null where all of this rank's pieces lie on the device.
  ParameterStore(const RankContext& context, const ModelShare& share, const Plan& plan, ParameterRecords* records);

  [[nodiscard]] const char* name() const noexcept override { return "parameters"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

  /// Begins to answer pulls.
  void start();

  // Steps that need parameters are its uses.
  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override { return step.needs_parameters(); }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t use) const override;
  void when_ready(std::uint64_t use, runtime::Handler handler) override;
  void provide(std::uint64_t use, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t use) override;
  void done(std::uint64_t use) override;

  /// All passes of a batch are over: those that follow wait for trained units that are not refreshed() yet.
  void begin_refresh();
  /// This rank's piece of the unit is as the step leaves it; once in each batch. A unit whose gradients are reduced is
  /// needed by nobody any more in the batch, in this row or another, and may be refreshed before its passes are over.
  void refreshed(std::size_t unit);

 private:
  struct Fill {
    std::size_t unit = 0;
    std::size_t place = 0;
  };
  struct Gather {
    std::uint64_t use = 0;
    bool backward = false;
    std::vector<Fill> fills;
    std::optional<std::uint64_t> after;         // the use that must be over before
    std::size_t own_missing = 0;                // pieces of this rank on their way from where it keeps them
    std::size_t missing = 0;                    // the own pieces, each answer to a pull, each collective
    std::vector<int> asked;                     // ranks whose answers are missing, once for each
    std::optional<runtime::Duration> asked_at;  // other ranks were; none: they are not, or their turn has not come
    runtime::Duration came{};                   // the last that they sent
    runtime::Duration since{};                  // that it began, of the loop
  };
  struct Use {
    models::Stage::PassStep step;
    std::vector<const std::byte*> pointers;  // by unit of the layer, where some are gathered
    bool here = true;                        // what was gathered for this use; the rest came for an earlier one
  };
  struct Place {
    std::byte* data = nullptr;
    int copies = 0;  // under way from here
  };
  /// `elements` by unit, as for classes_of().
  [[nodiscard]] static Plan::Way plan_way(PlanContext& planner, const std::vector<std::size_t>& elements,
                                          const std::vector<std::size_t>& way_of, std::size_t way);
  [[nodiscard]] ParameterRecords::Piece piece(std::size_t unit, bool backward) const;
  [[nodiscard]] bool has_piece(std::size_t unit, bool backward, std::uint64_t version) const;
  [[nodiscard]] bool up_to_date(std::size_t unit) const { return version_of_[unit] == version_; }
  [[nodiscard]] Use& use_of(std::uint64_t use) { return uses_[use - first_use_]; }
  [[nodiscard]] const Use& use_of(std::uint64_t use) const { return uses_[use - first_use_]; }
  void forget(std::uint64_t use);
  [[nodiscard]] bool can_start(const Gather& gather) const;
  void start_gathers();
  void read_ahead();
  void bring_own(const std::shared_ptr<Gather>& gather);
  void submit_brought();
  void pull(const std::shared_ptr<Gather>& gather);
  /// Something of other ranks.
  void came(const std::shared_ptr<Gather>& gather);
  void arrived(const std::shared_ptr<Gather>& gather);
  void filled(const std::shared_ptr<Gather>& gather);
  void keep_secondary(std::size_t unit, std::size_t place);
  /// Calls `next` on the loop after the copies that are queued.
  void after_copies(runtime::Handler next);
  void check_waiting();
  [[nodiscard]] std::string describe(const Gather& gather) const;

  const RankContext* context_;
  ParameterRecords* records_;
  const models::StageSlices* stage_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  UnitPieces pieces_;
  Options options_;
  bool
      gathers_;  // units are brought to places for uses; otherwise steps read all of them where this rank holds them
  BufferSchedule schedule_;
  struct Way {
    HopPipeline forward, backward;
  };
  std::vector<Way> ways_;
  std::vector<std::size_t> way_of_;  // by unit
  std::vector<Place> places_;
  std::optional<PiecePulls> pulls_;                   // where rows differ
  std::vector<std::vector<const std::byte*>> whole_;  // by layer, where units need not be gathered

  std::uint64_t version_ = 0;                      // batches whose passes are over
  std::vector<std::uint64_t> version_of_;          // by unit, how often it was refreshed
  std::vector<std::uint64_t> secondary_of_;        // version of the secondary copy, plus one
  std::vector<std::uint64_t> secondary_begun_of_;  // likewise, of the one that may still be copied
  std::deque<Use> uses_;                           // that were announced and are not over
  std::uint64_t first_use_ = 0;                    // number of uses_.front()
  std::deque<std::shared_ptr<Gather>> gathers_to_start_;
  std::vector<std::shared_ptr<Gather>> gathers_under_way_;
  std::deque<std::shared_ptr<Gather>> to_submit_;  // to the collectives, in order, as their own pieces come
  std::uint64_t waiting_use_ = 0;
  runtime::Handler waiting_;
};

}  // namespace ranvier::actors
