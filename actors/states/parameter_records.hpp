// Parameters off the device: this rank's part of every unit, in host memory or in files, where the device has places
// for a few units only (ZeRO-Infinity §5.1.1). A rank moves its own part and nothing else, so that all of a column's
// links to host memory and disks work at a time; the rest comes from the other ranks (bandwidth-centric, §6.1).
//
//   record     what a part has of a bucket, in bucket order (unit_cut.hpp), on whole blocks: so the optimizer's phase
//              stores a bucket as it leaves it, whatever the scopes
//   read-ahead files are read to a few pinned buffers in the order of the announced fetches, ahead of the places on
//              the device: nvme→host of unit i+3, host→device of i+2, the gather of i+1 and the computation of unit
//              i go on at a time (§6.2). Parts in host memory are copied from where they lie.
//
// What is fetched, lent or stored at a time does not overlap: ParameterStore has passes and steps take turns, and says
// from when on a unit may be read. Loop thread only.
#pragma once

#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/state_place.hpp"
#include "runtime/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class ParameterRecords final : public Actor {
 public:
  /// The part for forward passes, or ZeRO++'s for backward passes.
  struct Piece {
    std::size_t unit = 0;
    bool secondary = false;

    friend bool operator==(const Piece&, const Piece&) = default;
  };

  struct Options {
    int prefetch = 2;    ///< buffers besides the one that is copied from; 0: nothing is read ahead
    bool lends = false;  ///< pulls are answered
  };

  struct Plan {
    std::vector<offload::TierRegion> parameters, secondary;  ///< by unit; none for what is not there
    std::optional<runtime::MemoryId> buffers, answers;       ///< pinned, where parts are in files
    std::optional<runtime::MemoryId> values;                 ///< pinned: what a source fills
    std::size_t buffer_bytes = 0, buffer_count = 0;
    std::size_t answer_bytes = 0;
    bool reads_ahead = false;
  };
  /// Plans nothing where all parameters stay on the device, and nothing for units that do.
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  ParameterRecords(const RankContext& context, const ModelShare& share, const Plan& plan);

  [[nodiscard]] const char* name() const noexcept override { return "parameter records"; }

  /// Values of elements [begin, begin + out.size()) of a unit.
  using Source = std::function<void(const models::UnitSpec& unit, std::size_t begin, std::span<float> out)>;
  /// Fills the parts for forward passes that are off the device; once, before anything else. The compute stream is
  /// idle.
  void load(Source weights, runtime::Handler done);

  /// Stores what a step of the optimizer leaves of a bucket: BucketPartition::elements(parameters.range, bucket) elements of
  /// the compute dtype in bucket order, at `record` on the device, which may change once `done` was called.
  void store(std::size_t unit, std::size_t bucket, std::byte* record, runtime::Handler done);
  /// Stores the whole part, which lies on the device in unit order, element `first` of the unit at `data`.
  void store_from(Piece piece, std::byte* data, std::size_t first, runtime::Handler done);

  /// Copies elements [begin, …) of the part for forward passes to memory of the host, as many as `values` has. What
  /// comes from files passes through `blocks`, pinned, of as many bytes and two blocks. Between steps, one call at a
  /// time.
  void read(std::size_t unit, std::size_t begin, std::span<std::byte> values, std::span<std::byte> blocks,
            runtime::Handler done);

  /// Where elements of the part for forward passes lie, from `begin` on, as far as they are in its bucket and finest
  /// piece.
  [[nodiscard]] StatePlace place(std::size_t unit, std::size_t begin) const;

  /// Fetches come in the order of these calls.
  void announce(Piece piece);
  /// Brings the part to where it belongs within `whole`, a place of the unit on the device.
  void fetch(Piece piece, std::byte* whole, runtime::Handler done);
  /// Begins to read what was announced, up to the first piece that may not be read yet; to be called again when that
  /// changes and when a fetch is done.
  void read_ahead(const std::function<bool(Piece)>& may_be_read);

  /// Calls `send` with the pieces, which are of one tier, in unit order, one after another, as soon as memory for them
  /// is free; it calls `sent` when the ranges are not needed any more. `version` tells what was lent before a step from
  /// what is lent after it.
  using Send = std::function<void(std::span<const runtime::ConstBytes> ranges, runtime::Handler sent)>;
  void lend(std::vector<Piece> pieces, std::uint64_t version, Send send);

 private:
  /// A part in files that was announced.
  struct Reading {
    Piece piece;
    std::optional<std::size_t> buffer;  // that it is read to
    bool here = false;                  // there
    std::byte* whole = nullptr;         // where it goes, once it was asked for
    runtime::Handler done;
  };
  struct Loan {
    std::vector<Piece> pieces;
    std::uint64_t version = 0;
    Send send;
  };
  /// Pinned memory that pieces are sent from.
  struct Answer {
    std::vector<Piece> pieces;
    std::uint64_t version = 0;
    bool here = false;
    int users = 0;  // sends, and the reads that come before them
    std::vector<Send> waiting;
  };

  [[nodiscard]] bool in_files(std::size_t unit) const { return states_->all()[unit].tier == TierKind::nvme; }
  [[nodiscard]] const UnitView& part(Piece piece) const;
  [[nodiscard]] offload::TierRegion region(Piece piece) const;
  [[nodiscard]] const offload::BucketLayout& layout(Piece piece) const;
  /// Calls f(element of the unit, count, offset in the region) for every run, bucket by bucket.
  template <typename F>
  void for_runs(Piece piece, F&& f) const;
  /// The part in unit order, where the region's bytes lie at `image`.
  void add_ranges(Piece piece, const std::byte* image, std::vector<runtime::ConstBytes>& ranges) const;
  [[nodiscard]] std::span<std::byte> buffer(std::size_t index, Piece piece) const;
  void transfer(Piece piece, std::byte* data, std::size_t first, bool fetches, runtime::Handler done);
  void load_next(std::size_t unit);
  /// Where an element of the part lies in the region, and how many follow it there.
  struct Run {
    std::size_t offset = 0;
    std::size_t elements = 0;
  };
  [[nodiscard]] Run run_from(Piece piece, std::size_t element) const;
  /// Reads, in order, what was asked for or `may` be read.
  void read(const std::function<bool(Piece)>& may);
  void copy_out(const std::shared_ptr<Reading>& reading);
  [[nodiscard]] bool lend_now(const Loan& loan);
  void lend_waiting();
  void send_from(std::size_t answer, const Send& send);

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  std::vector<offload::BucketLayout> layouts_, secondary_layouts_;  // by unit; of no use where it has none

  std::deque<std::shared_ptr<Reading>> readings_;  // in the order of the announcements
  std::vector<std::size_t> free_buffers_;
  std::vector<Answer> answers_;
  std::deque<Loan> loans_;  // wait for an answer's memory

  Source weights_;
  runtime::Handler loaded_;
};

}  // namespace ranvier::actors
