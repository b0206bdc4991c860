// Takes units through the collectives of a flow (collectives/shard.hpp), several of them in different hops at a time:
// while one bundle of units goes through the inter-group hop, the next one goes through the intra-group hop. A bundle
// goes as one operation (coalesced, MiCS §4). Each hop starts bundles in the order in which they were submitted, the
// same on all ranks, whatever finishes first. Loop thread only.
#pragma once

#include "collectives/communicator_source.hpp"
#include "collectives/shard.hpp"
#include "runtime/arena.hpp"
#include "runtime/event_loop.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::actors {

/// What the operations of a column need to know, whichever flow they belong to.
struct ColumnOptions {
  collectives::ShardLayout layout;
  collectives::Sharding sharding;
  std::vector<int> ranks;  ///< MPI ranks of the column, in row order
  std::array<collectives::PlanChoice, collectives::team_kinds> choices;  ///< by TeamKind
  collectives::CommunicatorSource* source = nullptr;  ///< null: communicators run plans over the transport
};

class HopPipeline {
 public:
  /// A unit, or a part of one that has the ranges of all hops in it, on this rank.
  ///
  /// With a slice only these elements of every finest piece (unit.elements / layout.ranks() of them) are worked on,
  /// where they lie. Each element keeps its owner in every hop, and with it the order of its sum: what a unit's
  /// slices give one after the other is to the bit what the unit gives at once.
  struct Part {
    std::byte* data = nullptr;
    std::size_t begin = 0;          ///< the element of the unit that lies at `data`
    std::size_t elements = 0;       ///< of the whole unit
    collectives::Range slice = {};  ///< in each finest piece; a count of 0: all of it
    bool compact = false;           ///< the slices of the pieces from `begin` on lie one after another; on all ranks or none
  };

  /// A part without its data, for planning.
  struct PartShape {
    std::size_t elements = 0;  ///< of the whole unit
    std::size_t slice = 0;     ///< Part::slice.count; compact or not
  };

  /// Places where the sums of a flow arrive.
  struct Memory {
    std::vector<runtime::MemoryId> staging;  ///< by hop
    std::vector<std::size_t> staging_bytes;  ///< likewise, of one operation
  };

  /// `bundles`: the shapes of every bundle that may be submitted, shorter last slices too. `name` is for the table
  /// of memory.
  [[nodiscard]] static Memory plan(const ColumnOptions& column, const std::vector<collectives::Hop>& hops,
                                   const std::vector<std::vector<PartShape>>& bundles, runtime::DType dtype,
                                   const std::string& name, runtime::MemoryPlan& plan);
  /// The same for whole units, of which `bundles` has the elements.
  [[nodiscard]] static Memory plan(const ColumnOptions& column, const std::vector<collectives::Hop>& hops,
                                   const std::vector<std::vector<std::size_t>>& bundles, runtime::DType dtype,
                                   const std::string& name, runtime::MemoryPlan& plan);

  /// `family` tells the pipelines of a rank apart, 0 to 7.
  HopPipeline(runtime::EventLoop& loop, collectives::Executor& executor, const ColumnOptions& column,
              std::vector<collectives::Hop> hops, runtime::DType dtype, int family, const Memory& memory,
              const runtime::Arena& arena);

  /// `done` runs on the loop after this returned, once this rank has what the last hop leaves. What wrote the data
  /// has finished.
  void submit(std::vector<Part> parts, std::string what, runtime::Handler done);

  [[nodiscard]] std::vector<std::string> running() const;

 private:
  struct Bundle {
    std::vector<Part> parts;
    std::string what;
    runtime::Handler done;
    std::size_t hop = 0;   // that comes next
    bool waits = true;     // for that hop to start
  };

  void start_ready(std::size_t hop);
  void finished(const std::shared_ptr<Bundle>& bundle);

  runtime::EventLoop* loop_;
  const collectives::ShardLayout* layout_;
  std::vector<collectives::Hop> hops_;
  runtime::DType dtype_;
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;  // by hop
  std::vector<std::deque<std::shared_ptr<Bundle>>> queues_;                // by hop, in the order of submission
};

}  // namespace ranvier::actors
