// Takes units through the collectives of a flow (collectives/shard.hpp), several of them in different hops at a time:
// while one bundle of units goes through the inter-group hop, the next one goes through the intra-group hop. A bundle
// goes as one operation (coalesced, MiCS §4). Each hop starts bundles in the order in which they were submitted, the
// same on all ranks, whatever finishes first. Loop thread only.
#pragma once

#include "actors/exchange/column_options.hpp"
#include "actors/rank/actor.hpp"
#include "runtime/arena.hpp"
#include "runtime/event_loop.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::actors {

struct PlanContext;
struct RankContext;

class HopPipeline {
 public:
  /// A unit, or a part of one that has the ranges of all hops in it, on this rank.
  ///
  /// With a slice only these elements of every finest piece (unit.elements / layout.ranks() of them) are worked on,
  /// where they lie. Each element keeps its owner in every hop, and with it the order of its sum: what a unit's
  /// slices give one after the other is to the bit what the unit gives at once.
  struct Item {
    std::byte* data = nullptr;
    std::size_t begin = 0;          ///< the element of the unit that lies at `data`
    std::size_t elements = 0;       ///< of the whole unit
    collectives::Range slice = {};  ///< in each finest piece; a count of 0: all of it
    bool compact = false;  ///< the slices of the pieces from `begin` on lie one after another; on all ranks or none
  };

  /// An item without its data, for planning.
  struct ItemShape {
    std::size_t elements = 0;  ///< of the whole unit
    std::size_t slice = 0;     ///< Item::slice.count; compact or not
  };

  struct Options {
    std::vector<collectives::Hop> hops;  ///< of the flow
    runtime::DType dtype = runtime::DType::f32;
    int family = 0;    ///< tells the pipelines of a rank apart, 0 to 7
    std::string name;  ///< of what goes through, for the table of memory
  };
  /// The hops, and places where their sums arrive.
  struct Plan {
    std::vector<collectives::Hop> hops;
    runtime::DType dtype = runtime::DType::f32;
    int family = 0;
    std::vector<runtime::MemoryId> staging;  ///< by hop
    std::vector<std::size_t> staging_bytes;  ///< likewise, of one operation
  };
  /// `bundles`: the shapes of every bundle that may be submitted, shorter last slices too.
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options,
                                 const std::vector<std::vector<ItemShape>>& bundles);

  HopPipeline(const RankContext& context, const ColumnOptions& column, const Plan& plan);

  /// `done` runs on the loop after this returned, once this rank has what the last hop leaves. What wrote the data
  /// has finished.
  void submit(std::vector<Item> items, std::string what, runtime::Handler done);

  /// Whether anything goes over links.
  [[nodiscard]] bool moves() const noexcept { return !hops_.empty(); }
  /// Operations under way.
  [[nodiscard]] std::vector<Wait> waits() const;
  /// The ranks of its hops.
  [[nodiscard]] std::vector<int> peers() const;

 private:
  struct Bundle {
    std::vector<Item> items;
    std::string what;
    runtime::Handler done;
    std::size_t hop = 0;  // that comes next
    bool waits = true;    // for that hop to start
  };

  void start_ready(std::size_t hop);
  void finished(const std::shared_ptr<Bundle>& bundle);

  runtime::EventLoop* loop_;
  const ColumnOptions* column_;
  std::vector<collectives::Hop> hops_;
  runtime::DType dtype_;
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;  // by hop
  std::vector<std::deque<std::shared_ptr<Bundle>>> queues_;                // by hop, in the order of submission
};

}  // namespace ranvier::actors
