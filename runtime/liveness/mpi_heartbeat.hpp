// Waits of ranks for each other outside of the event loop. A rank waits as long as its peers send heartbeats, which
// tell their progress and current activity. All ranks send to rank 0, and rank 0 sends to all, so a rank in a
// collective knows which rank it waits for. Only on the thread that calls MPI.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::runtime {

class ThreadWatchdog;

class MpiHeartbeat {
 public:
  struct Options {
    Duration patience = std::chrono::minutes(10);   ///< longest silence of a peer
    std::string why;                                ///< reason of the patience, for users: "ten times `timeout` 60"
    std::function<std::string(int rank)> describe;  ///< null: "rank 1"
    ThreadWatchdog* watch = nullptr;  ///< knows this rank's activity and records its waits; may be null
  };

  /// Collective call of all ranks.
  MpiHeartbeat(int rank, int ranks);
  ~MpiHeartbeat();
  MpiHeartbeat(const MpiHeartbeat&) = delete;
  MpiHeartbeat& operator=(const MpiHeartbeat&) = delete;

  void set(Options options) { options_ = std::move(options); }
  /// Sends this rank's activity to its peers, without blocking. Call it while other ranks may wait for this one.
  void send();
  /// Waits for a collective of all ranks: until `done` returns true. Throws ErrorCode::transport, naming the rank, once
  /// a peer was silent for the patience.
  void wait(const std::function<bool()>& done);

 private:
  struct PeerStatus {
    std::uint64_t place = 0;  // number of collectives that the rank has reached
    std::string does;         // "loads its weights, for 3.0 s"; empty: no message yet
    Duration silent{};        // waited since its last message
  };
  struct State;

  /// Receives all messages that have arrived.
  void poll();
  /// Ranks that this one exchanges messages with: all others on rank 0, else rank 0.
  [[nodiscard]] std::vector<int> sources() const;
  [[nodiscard]] std::string describe(int rank) const;
  /// The source that has not reached this collective and is silent for longest.
  [[nodiscard]] std::optional<int> late() const;
  [[nodiscard]] std::string whom_it_waits_for() const;
  void judge(Duration waited) const;

  int rank_, ranks_;
  Options options_;
  std::uint64_t place_ = 0;        // number of collectives reached
  std::vector<PeerStatus> peers_;  // only entries of sources() are ever set
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
