// Pieces of units by messages, where rows of a column differ in what they compute next: a rank asks the owners for
// their pieces, and answers those who ask for its own as soon as it has what they need. No order is shared, and each
// answer depends on the owner's last step only, so none can deadlock. Implementation of ParameterStore. Loop thread
// only.
#pragma once

#include "actors/rank/rank_context.hpp"
#include "actors/states/parameter_records.hpp"
#include "actors/states/buffer_schedule.hpp"
#include "actors/states/unit_pieces.hpp"
#include "runtime/staged_transport.hpp"

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
  /// Whether this rank has its piece for such passes, of this version.
  using HasPiece = std::function<bool(std::size_t unit, bool backward, std::uint64_t version)>;
  struct Fill {
    std::size_t unit = 0;
    std::size_t place = 0;      ///< its number, by which answers are told apart
    std::byte* data = nullptr;  ///< for the whole unit
  };

  /// What pulls send and receive at a time.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const ModelShare& share,
                                                                            const BufferClasses& classes);

  /// `records` is null where all of this rank's pieces lie on the device.
  PiecePulls(const RankContext& context, const ModelShare& share, ParameterRecords* records, HasPiece has_piece);
  ~PiecePulls();

  /// Begins to answer.
  void start();
  /// Asks all other owners. Returns the ranks whose answers are then awaited, once for each; `arrived` is called with
  /// the rank for each of them.
  [[nodiscard]] std::vector<int> ask(std::span<const Fill> fills, bool backward, std::uint64_t version,
                                     const std::function<void(int rank)>& arrived);
  /// This rank may have pieces that it had not before.
  void answer_waiting();

 private:
  /// As it travels.
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
  void answer(int row, const Request& request);

  const RankContext* context_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  UnitPieces pieces_;
  ParameterRecords* records_;
  HasPiece has_piece_;
  std::vector<std::shared_ptr<Peer>> peers_;
  std::vector<std::pair<int, Request>> deferred_;  // that came before this rank had the pieces, by row
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ranvier::actors
