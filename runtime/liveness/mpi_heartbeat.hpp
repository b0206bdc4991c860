// Heartbeats between ranks before their loops run: progress and current activity. All ranks send to rank 0, and rank
// 0 sends to all, so a rank in a collective knows which rank it waits for. Calls never block. Only on the thread that
// calls MPI.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::runtime {

class MpiHeartbeat {
 public:
  struct PeerStatus {
    std::uint64_t place = 0;  ///< number of collectives that the rank has reached
    std::string does;         ///< "loads its weights, for 3.0 s"; empty: no message yet
    Duration silent{};        ///< time since its last message, as counted by pass()
  };

  /// Collective call of all ranks.
  MpiHeartbeat(int rank, int ranks);
  ~MpiHeartbeat();
  MpiHeartbeat(const MpiHeartbeat&) = delete;
  MpiHeartbeat& operator=(const MpiHeartbeat&) = delete;

  /// Sends to all sources(). Skips peers whose last message is still in flight.
  void send(std::uint64_t place, const std::string& does);
  /// Receives all messages that have arrived.
  void poll();
  /// Adds `time` to the silence of every rank; poll() resets it for ranks that sent.
  void pass(Duration time);
  /// Resets the silence of all ranks.
  void reset_timeouts();

  /// Last message by rank; only entries of sources() are ever set.
  [[nodiscard]] const std::vector<PeerStatus>& peers() const noexcept { return peers_; }
  /// Ranks that this one exchanges messages with: all others on rank 0, else rank 0.
  [[nodiscard]] std::vector<int> sources() const;

 private:
  struct State;
  int rank_, ranks_;
  std::vector<PeerStatus> peers_;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
