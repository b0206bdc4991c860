// Offloaded parameters: this rank's shards in host memory or files (ZeRO-Infinity §5.1.1). Primary and secondary
// shards may be on different tiers: ZeRO++'s second copy in host memory (FCDP, arXiv 2602.06499). Each rank moves only
// its own shards, so all host links and disks of a column work in parallel (bandwidth-centric, §6.1); other shards
// come from their owners.
//
// Announced shards in files are read ahead into a few pinned buffers (§6.2). ParameterStore ensures that fetches,
// loans and stores of a unit do not overlap. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/shard_records.hpp"
#include "runtime/device/slot_pool.hpp"
#include "runtime/kernels/block_codec.hpp"
#include "runtime/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class OffloadedParameters final : public Actor {
 public:
  /// Primary shard, or ZeRO++'s secondary shard.
  struct Shard {
    std::size_t unit = 0;
    bool secondary = false;

    friend bool operator==(const Shard&, const Shard&) = default;
  };

  struct Plan {
    std::vector<ShardRecords> parameters, secondary;  ///< by unit; without a region if no shard is off the device
    runtime::SlotPool::Plan buffers, answers;         ///< pinned; for shards in files
    std::optional<runtime::MemoryId> values;          ///< pinned; staging of load()
  };
  /// Plans offloaded shards; the plan is empty if all shards stay on the device. `prefetch`: additional buffers for
  /// reading ahead; 0: no read-ahead. `lends`: whether other ranks pull shards.
  [[nodiscard]] static Plan plan(PlanContext& planner, int prefetch, bool lends);

  OffloadedParameters(const RankContext& context, const ModelShare& share, const Plan& plan);

  [[nodiscard]] const char* name() const noexcept override { return "offloaded parameters"; }

  /// Values of elements [begin, begin + out.size()) of a unit.
  using Source = std::function<void(const models::UnitSpec& unit, std::size_t begin, std::span<float> out)>;
  /// Fills the offloaded shards for forward passes, unit by unit; once, before all other calls, with an idle compute
  /// stream.
  void load(const Source& weights, const runtime::Handler& done, std::size_t first_unit = 0);

  /// Stores a bucket's updated parameters: BucketPartition::elements(parameters.range, bucket) elements of the compute
  /// dtype in bucket order. `record` is on the device and must stay unchanged until `done`.
  void store(std::size_t unit, std::size_t bucket, std::byte* record, runtime::Handler done);
  /// Stores a complete shard from `whole`, the device buffer of the complete unit.
  void store_from(Shard shard, std::byte* whole, runtime::Handler done);

  [[nodiscard]] const ShardRecords& records(Shard shard) const;

  /// Announces a fetch; fetches must follow in the same order.
  void announce(Shard shard);
  /// Copies the shard to its range in `whole`, the device buffer of the complete unit.
  void fetch(Shard shard, std::byte* whole, runtime::Handler done);
  /// Starts reading announced shards, up to the first one for which `may_be_read` is false. Call it again when that
  /// changes and after each fetch.
  void read_ahead(const std::function<bool(Shard)>& may_be_read);

  /// Calls `send` with the bytes of shards of one tier, in unit order, as soon as memory is free; `send` calls `sent`
  /// when it no longer needs them. `version`: number of updates, so that stale data is not lent.
  using Send = std::function<void(std::span<const runtime::ConstBytes> ranges, runtime::Handler sent)>;
  void lend(std::vector<Shard> shards, std::uint64_t version, Send send);

 private:
  /// An announced shard in files.
  struct Reading {
    Shard shard;
    runtime::SlotPool::Slot buffer;  // destination of the read
    bool here = false;               // the read has finished
    std::byte* whole = nullptr;      // destination of the fetch; null: not requested yet
    runtime::Handler done;
  };
  struct Loan {
    std::vector<Shard> shards;
    std::uint64_t version = 0;
    Send send;
  };
  /// Pinned memory from which shards are sent.
  struct Answer {
    std::vector<Shard> shards;
    std::uint64_t version = 0;
    bool here = false;
    int users = 0;  // pending reads and sends
    std::vector<Send> waiting;
  };

  /// Reads, in order, shards that were requested or `may` be read.
  void read(const std::function<bool(Shard)>& may);
  void copy_out(const std::shared_ptr<Reading>& reading);
  void serve_loans();
  void send_from(std::size_t answer, const Send& send);

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  std::size_t width_;  // bytes per element
  std::optional<runtime::BlockCode> refresh_code_;

  std::deque<std::shared_ptr<Reading>> readings_;  // in the order of the announcements
  runtime::SlotPool buffers_;
  std::vector<Answer> answers_;
  std::deque<Loan> loans_;  // waiting for memory
};

}  // namespace ranvier::actors
