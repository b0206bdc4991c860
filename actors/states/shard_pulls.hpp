// Owners of shards, and pulls of shards by messages if rows of a column differ in the order of passes. A rank requests
// shards from their owners, and replies to requests as soon as it has the requested version. Replies depend only on the
// owner's last update, so there is no deadlock. Implementation of ParameterStore. Loop thread only.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/schedule/buffer_schedule.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/offloaded_parameters.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::actors {

/// Owners of the shards that a rank needs for passes, and location of its own shards. `backward`: the unit is gathered
/// from secondary shards if it has them, as in backward passes. Any thread.
class ShardOwners {
 public:
  /// The share must outlive this object.
  explicit ShardOwners(const ModelShare& share) noexcept
      : states_(share.states.get()), column_(share.column.get()) {}

  /// Number of shards of a unit.
  [[nodiscard]] std::size_t count(std::size_t unit, bool backward) const {
    return static_cast<std::size_t>(column_->layout.pieces(scope(unit, backward)));
  }
  /// Owners of shards and their location. Units with equal values can be gathered together.
  struct From {
    collectives::TeamKind team = collectives::TeamKind::column;  ///< or a group, which may keep secondary copies
    bool secondary = false;                                      ///< whether units have secondary shards
    TierKind tier = TierKind::device;

    friend auto operator<=>(const From&, const From&) = default;
  };
  /// Returns nothing if passes need no shards of other ranks.
  [[nodiscard]] std::optional<From> from(std::size_t unit, bool backward) const {
    const UnitState& state = states_->all()[unit];
    if (state.in_place() || count(unit, backward) == 1) return std::nullopt;
    const bool of_column = scope(unit, backward) == collectives::Scope::global;
    return From{of_column ? collectives::TeamKind::column : collectives::TeamKind::group,
                state.secondary.has_value(), tier(unit, backward)};
  }
  [[nodiscard]] const collectives::Team& owners(const From& from) const { return column_->layout.team(from.team); }
  /// Rows with which this rank exchanges shards in any pass.
  [[nodiscard]] std::set<int> other_rows() const {
    std::set<int> rows;
    for (std::size_t unit = 0; unit < states_->all().size(); ++unit) {
      for (const bool backward : {false, true}) {
        const auto source = from(unit, backward);
        if (!source) continue;
        const auto& members = owners(*source).members;
        rows.insert(members.begin(), members.end());
      }
    }
    rows.erase(column_->layout.rank());
    return rows;
  }
  /// Range of a row's shard.
  [[nodiscard]] collectives::Range range(std::size_t unit, bool backward, int row) const {
    return column_->layout.range(scope(unit, backward), states_->all()[unit].elements, row);
  }

  /// This rank's shard, which may be a secondary copy (ZeRO++).
  [[nodiscard]] OffloadedParameters::Shard own(std::size_t unit, bool backward) const {
    return {unit, backward && states_->all()[unit].secondary.has_value()};
  }
  /// Tier of this rank's shard.
  [[nodiscard]] TierKind tier(std::size_t unit, bool backward) const {
    const UnitState& state = states_->all()[unit];
    return own(unit, backward).secondary ? state.secondary_tier : state.tier;
  }
  /// Bytes of this rank's shard, if it is on the device.
  [[nodiscard]] runtime::ConstBytes bytes(std::size_t unit, bool backward) const {
    const UnitState& state = states_->all()[unit];
    const UnitView& view = own(unit, backward).secondary ? *state.secondary : state.parameters;
    const collectives::Range range = this->range(unit, backward, column_->layout.rank());
    return {view.at(range.begin), runtime::bytes_of(view.dtype, range.count)};
  }

 private:
  [[nodiscard]] collectives::Scope scope(std::size_t unit, bool backward) const {
    const collectives::Sharding& sharding = column_->sharding.of(states_->all()[unit].trained());
    return backward && sharding.secondary_parameters ? collectives::Scope::group : sharding.parameters;
  }

  const UnitStates* states_;
  const ColumnOptions* column_;
};

class ShardPulls {
 public:
  /// Returns whether this rank has its shard of a unit in this version.
  using HasShard = std::function<bool(std::size_t unit, bool backward, std::uint64_t version)>;
  struct Fill {
    std::size_t unit = 0;
    std::size_t place = 0;      ///< number of the buffer, which identifies replies
    std::byte* data = nullptr;  ///< buffer for the complete unit
    bool backward = false;      ///< from secondary shards, if the unit has them
  };

  /// Maximum of pull messages in flight.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const ModelShare& share,
                                                                            const BufferClasses& classes);

  /// `records` is null if all shards are on the device.
  ShardPulls(const RankContext& context, const ModelShare& share, OffloadedParameters* records, HasShard has_shard);
  ~ShardPulls();

  /// Starts replying to requests.
  void start();
  /// Requests shards from all other owners. Returns the ranks of expected replies, once per reply; `arrived` is called
  /// for each reply.
  [[nodiscard]] std::vector<int> ask(std::span<const Fill> fills, std::uint64_t version,
                                     const std::function<void(int rank)>& arrived);
  /// Call it when this rank may have new shards: replies to deferred requests.
  void answer_waiting();

 private:
  /// Message format of a request.
  struct Request {
    static constexpr std::size_t max_units = 8;
    std::uint64_t version = 0;
    std::uint32_t answer = 0;  // index of the answer's tag
    std::uint8_t backward = 0;
    std::uint8_t count = 0;
    std::uint16_t units[max_units] = {};
  };

  /// Receives the next request of a row. The transport may keep its receive after ShardPulls is destroyed.
  void listen(int row, const std::shared_ptr<Request>& request);
  /// Replies when this rank has the shards.
  void answer(int row, const Request& request);

  const RankContext* context_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  ShardOwners owners_;
  OffloadedParameters* records_;
  HasShard has_shard_;
  std::vector<std::pair<int, Request>> deferred_;  // requests by row for shards that this rank does not have yet
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ranvier::actors
