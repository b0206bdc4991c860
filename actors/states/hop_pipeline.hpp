// Passes bundles of units through the collectives of a flow (collectives/plans/shard.hpp), pipelined over hops: one
// bundle is in the inter-group hop while the next is in the intra-group hop. A bundle is one operation (coalesced,
// MiCS §4). Each hop starts bundles in submission order, the same on all ranks. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/states/unit_shardings.hpp"
#include "runtime/device/slot_pool.hpp"
#include "runtime/kernels/block_codec.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

struct PlanContext;
struct RankContext;

class HopPipeline {
 public:
  /// A unit, or a range of one that contains the ranges of all hops, on this rank.
  ///
  /// If `slice` is set, the collective runs in place on these elements of every finest shard (unit.elements /
  /// layout.ranks() elements each). Each element keeps its owner in every hop, and the order of its sum. So slices one
  /// after another give the same bits as the complete unit at once.
  struct Item {
    std::byte* data = nullptr;
    std::size_t begin = 0;          ///< element of the unit at `data`
    std::size_t elements = 0;       ///< elements of the complete unit
    collectives::Range slice = {};  ///< range in each finest shard; count 0: all
    bool compact = false;           ///< slices starting at `begin` are stored contiguously; equal on all ranks
  };

  /// Size of an item, for planning.
  struct ItemShape {
    std::size_t elements = 0;  ///< elements of the complete unit
    std::size_t slice = 0;     ///< Item::slice.count
  };

  struct Options {
    std::vector<collectives::Hop> hops;  ///< hops of the flow
    runtime::DType dtype = runtime::DType::f32;
    int family = 0;    ///< distinguishes the pipelines of a rank: 0 to 7
    std::string name;  ///< name of the data in the memory table
    /// Types of elements in messages, for gathered parameters or for gradients.
    collectives::WireTypes::Links collectives::WireTypes::* wire = &collectives::WireTypes::gather;
  };
  struct Plan : Options {
    std::vector<runtime::SlotPool::Plan> staging;          ///< by hop: receive buffers for sums, one per operation
    std::vector<std::optional<runtime::BlockCode>> codes;  ///< by hop: blocks of messages; none: type of the data
    std::vector<runtime::SlotPool::Plan> packed;           ///< by hop: messages in blocks, one per operation
  };
  /// Blocks of a team's messages; none: messages have the type of the data. Throws ErrorCode::usage for parameters in
  /// int4.
  [[nodiscard]] static std::optional<runtime::BlockCode> code_of(
      const ColumnOptions& column, collectives::TeamKind team,
      collectives::WireTypes::Links collectives::WireTypes::* wire);
  /// `bundles`: shapes of all bundles that may be submitted, shorter last slices included.
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options,
                                 const std::vector<std::vector<ItemShape>>& bundles);

  HopPipeline(const RankContext& context, const ColumnOptions& column, const Plan& plan);

  /// Submits a bundle whose data is written. `done` runs on the loop, after this returned, when this rank has the
  /// result of the last hop.
  void submit(std::vector<Item> items, std::string what, runtime::Handler done);

  /// Returns whether any hop communicates.
  [[nodiscard]] bool moves() const noexcept { return !hops_.empty(); }
  [[nodiscard]] std::vector<Wait> waits() const;
  [[nodiscard]] std::vector<int> peers() const;

 private:
  struct Bundle {
    std::uint64_t number = 0;
    std::vector<Item> items;
    std::string what;
    runtime::Handler done;
  };

  /// Starts a hop of a bundle, after the same hop of all earlier bundles has started.
  void start(const std::shared_ptr<Bundle>& bundle, std::size_t hop);

  runtime::EventLoop* loop_;
  const ColumnOptions* column_;
  std::vector<collectives::Hop> hops_;
  runtime::DType dtype_;
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;  // by hop
  std::vector<runtime::InOrder> starts_;                                   // by hop
  std::uint64_t submitted_ = 0;                                            // bundles
};

}  // namespace ranvier::actors
