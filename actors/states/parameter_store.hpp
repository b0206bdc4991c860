// Parameters as passes need them: whole, in the run's dtype, of this batch. Where a rank holds a piece only, a unit is
// gathered into a place just before its use and released after it, the next ones while this one computes
// (ZeRO-Infinity §6.2, §7.1; MiCS §4); a unit that the optimizer has not refreshed yet is waited for. Where parameters
// live off the device (parameter_tier.hpp), this rank's piece comes to its place from there, whole units too.
//
// A pass announces its needs, which decides at once which unit goes where (SlotSchedule). How a unit comes:
//
//   collectives   where all rows of the column compute in the same order: hop by hop, units of a step as one operation
//   pulls         where messages decide what a stage computes next, and rows differ: this rank asks the owners for
//                 their pieces and their loops answer, as soon as they have refreshed them. No order is shared, each
//                 answer depends on the owner's last step only, so none can deadlock.
//
// Loop thread only.
#pragma once

#include "actors/exchange/hop_pipeline.hpp"
#include "actors/states/parameter_tier.hpp"
#include "actors/states/slot_schedule.hpp"
#include "actors/states/unit_states.hpp"
#include "runtime/staged_transport.hpp"
#include "runtime/trace.hpp"
#include "runtime/transport.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

class ParameterStore {
 public:
  struct Options {
    int prefetch = 2;    ///< layers, or parts of them, gathered ahead of the one that computes; 0: none
    bool pulls = false;  ///< rows differ in what they compute next
    bool reuse = true;   ///< a unit that is still in its place is not gathered again, as the papers count it is
  };

  struct Memory {
    SlotClasses classes;
    std::vector<runtime::MemoryId> places;  ///< by class
    HopPipeline::Plan forward, backward;
  };
  [[nodiscard]] static Memory plan(const models::Stage& stage, const UnitStates& states, const ColumnOptions& column,
                                   const collectives::ShardFlow& flow, const Options& options, Planner& planner);

  /// What pulls send and receive at a time; nothing where there are none.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(
      const models::Stage& stage, const UnitStates& states, const ColumnOptions& column,
      const collectives::ShardFlow& flow, const Options& options, const Memory& memory);

  /// `copies` runs copies of this rank's own pieces; `tier` is null where those lie on the device. All outlive the
  /// store.
  ParameterStore(const RankContext& context, runtime::Transport& transport, runtime::StreamView copies, ParameterTier* tier, const models::Stage& stage, const UnitStates& states,
                 const ColumnOptions& column, const collectives::ShardFlow& flow, runtime::Trace& trace,
                 const Options& options, const Memory& memory, const runtime::Arena& arena);
  ~ParameterStore();

  /// Begins to answer pulls.
  void start();

  /// The steps of `pass` that need parameters, in order; returns the number of the first, the others follow.
  /// Passes are announced in the order in which they run, at the latest when they begin.
  std::uint64_t announce(const models::Stage::Pass& pass);
  /// Whether all units of that need, which is one of `step`, are there.
  [[nodiscard]] bool ready(std::uint64_t need, const models::Stage::Step& step) const;
  /// Calls `handler` once they are; one at a time.
  void when_ready(std::uint64_t need, const models::Stage::Step& step, runtime::Handler handler);
  /// By unit of the step's layer, there are those of the step; until used().
  [[nodiscard]] std::span<const std::byte* const> pointers(std::uint64_t need, const models::Stage::Step& step) const;
  /// What computes with them is done. Needs are used in order.
  void used(std::uint64_t need);
  /// Whether used() has to be called.
  [[nodiscard]] bool gathers() const noexcept { return gathers_; }

  /// All passes of a batch are over: those that follow wait for units that are not refreshed() yet.
  void begin_refresh();
  /// This rank's piece of the unit is as the step leaves it; once in each batch. A unit whose gradients are reduced is
  /// needed by nobody any more in the batch, in this row or another, and may be refreshed before its passes are over.
  void refreshed(std::size_t unit);

  /// What is awaited, for a report about a peer that is lost.
  [[nodiscard]] std::vector<std::string> running() const;

 private:
  struct Fill {
    std::size_t unit = 0;
    std::size_t slot = 0;
  };
  struct Gather {
    std::uint64_t need = 0;
    bool backward = false;
    std::vector<Fill> fills;
    std::optional<std::uint64_t> after;  // the use that must be over before
    std::size_t own_missing = 0;         // pieces of this rank on their way from where it keeps them
    std::size_t missing = 0;             // the own pieces, each answer to a pull, the collectives
    runtime::Trace::Clock::time_point began;
  };
  struct Need {
    std::vector<const std::byte*> pointers;  // by unit of the layer
    bool here = true;                        // what this need has to bring; the rest came for an earlier one
  };
  struct Slot {
    std::byte* data = nullptr;
    int copies = 0;  // under way from here
  };
  /// A pull, as it travels.
  struct Request {
    static constexpr std::size_t most_units = 8;
    std::uint64_t version = 0;
    std::uint32_t answer = 0;  // index of the answer's tag
    std::uint8_t backward = 0;
    std::uint8_t count = 0;
    std::uint16_t units[most_units] = {};
  };
  struct Peer;

  /// Where this rank's piece for such passes lies, and which range of the unit it or that of another row is.
  [[nodiscard]] const UnitPart& source(std::size_t unit, bool backward) const;
  [[nodiscard]] collectives::Range range(std::size_t unit, bool backward, int row) const;
  [[nodiscard]] const collectives::Team& owners(bool backward) const;
  [[nodiscard]] ParameterTier::Piece piece(std::size_t unit, bool backward) const;
  [[nodiscard]] bool has_piece(std::size_t unit, bool backward, std::uint64_t version) const;
  [[nodiscard]] bool up_to_date(std::size_t unit) const { return version_of_[unit] == version_; }
  [[nodiscard]] bool can_start(const Gather& gather) const;
  void start_gathers();
  void read_ahead();
  void bring_own(const std::shared_ptr<Gather>& gather);
  void submit_brought();
  void pull(const std::shared_ptr<Gather>& gather);
  void arrived(const std::shared_ptr<Gather>& gather);
  void filled(const std::shared_ptr<Gather>& gather);
  void keep_secondary(std::size_t unit, std::size_t slot);
  /// Calls `next` on the loop after the copies that are queued.
  void after_copies(runtime::Handler next);
  void listen(const std::shared_ptr<Peer>& peer);
  void asked(int row, const Request& request);
  [[nodiscard]] bool can_answer(const Request& request) const;
  void answer(int row, const Request& request);
  void answer_waiting();
  void check_waiting();
  [[nodiscard]] std::string describe(const Gather& gather) const;

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  runtime::StreamView copies_;
  ParameterTier* tier_;
  const models::Stage* stage_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  runtime::Trace* trace_;
  Options options_;
  bool gathers_;
  bool pulls_;
  SlotSchedule schedule_;
  HopPipeline forward_, backward_;
  std::vector<Slot> slots_;
  std::vector<std::vector<const std::byte*>> whole_;  // by layer, where units need not be gathered

  std::uint64_t version_ = 0;               // batches whose passes are over
  std::vector<std::uint64_t> version_of_;   // by unit, how often it was refreshed
  std::vector<std::uint64_t> secondary_of_;        // version of the secondary copy, plus one
  std::vector<std::uint64_t> secondary_begun_of_;  // likewise, of the one that may still be copied
  std::deque<Need> needs_;
  std::uint64_t first_need_ = 0;  // number of needs_.front()
  std::uint64_t used_ = 0;        // needs before this one are over
  std::deque<std::shared_ptr<Gather>> gathers_to_start_;
  std::vector<std::shared_ptr<Gather>> gathers_under_way_;
  std::deque<std::shared_ptr<Gather>> to_submit_;  // to the collectives, in order, as their own pieces come
  std::uint64_t waiting_need_ = 0;
  models::Stage::Step waiting_for_;
  runtime::Handler waiting_;

  std::vector<std::shared_ptr<Peer>> peers_;
  std::vector<std::pair<int, Request>> deferred_;  // pulls that came before the step was here, by row
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ranvier::actors
