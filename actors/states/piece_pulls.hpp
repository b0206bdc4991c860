// Pulls shards by messages if rows of a column differ in the order of passes. A rank requests shards from their owners,
// and replies to requests as soon as it has the requested version. Replies depend only on the owner's last update, so
// there is no deadlock. Implementation of ParameterStore. Loop thread only.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/schedule/buffer_schedule.hpp"
#include "actors/states/parameter_records.hpp"
#include "actors/states/unit_pieces.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::actors {

class PiecePulls {
 public:
  /// Returns whether this rank has its shard of a unit in this version.
  using HasPiece = std::function<bool(std::size_t unit, bool backward, std::uint64_t version)>;
  struct Fill {
    std::size_t unit = 0;
    std::size_t place = 0;      ///< number of the buffer, which identifies replies
    std::byte* data = nullptr;  ///< buffer for the complete unit
  };

  /// Maximum of pull messages in flight.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const ModelShare& share,
                                                                            const BufferClasses& classes);

  /// `records` is null if all parameters are stored on the device.
  PiecePulls(const RankContext& context, const ModelShare& share, ParameterRecords* records, HasPiece has_piece);
  ~PiecePulls();

  /// Starts replying to requests.
  void start();
  /// Requests shards from all other owners. Returns the ranks of expected replies, once per reply; `arrived` is called
  /// for each reply.
  [[nodiscard]] std::vector<int> ask(std::span<const Fill> fills, bool backward, std::uint64_t version,
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
  struct Peer;

  void ask_row(int row, std::span<const Fill> fills, bool backward, std::uint64_t version,
               const std::function<void(int rank)>& arrived, std::vector<int>& asked);
  void listen(const std::shared_ptr<Peer>& peer);
  [[nodiscard]] bool can_answer(const Request& request) const;
  /// Replies when this rank has the shards.
  void handle(int row, const Request& request);
  void answer(int row, const Request& request);

  const RankContext* context_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  UnitPieces pieces_;
  ParameterRecords* records_;
  HasPiece has_piece_;
  std::vector<std::pair<int, Request>> deferred_;  // requests by row for shards that this rank does not have yet
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ranvier::actors
