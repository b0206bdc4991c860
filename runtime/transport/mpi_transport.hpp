// Transport over MPI: Isend and Irecv, completed by Testsome from the loop (Myelin §IV-A). Only the loop's thread
// calls MPI. Every result is checked; an Error names call, peer and tag. Completions that are found together run
// their handlers in the order of the calls.
#pragma once

#include "runtime/liveness/mpi_heartbeat.hpp"
#include "runtime/transport/transport.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::runtime {

/// Whether this MPI reports that it can send and receive GPU memory itself. Call it after MpiSession is made.
[[nodiscard]] bool mpi_reaches_gpus();

/// Number of ranks started by the launcher (mpirun, srun), from its environment variables; 1 if none is set. Larger
/// than MpiSession::ranks() if the launcher belongs to another MPI, since every process is then a world of its own.
[[nodiscard]] int launched_ranks() noexcept;

/// Name and version of the MPI library: "Open MPI v4.1.4". Works before MPI is initialized.
[[nodiscard]] std::string mpi_library();

/// MPI_Init_thread and MPI_Finalize as an object; one per process, made first in main.
class MpiSession {
 public:
  /// MPI may change argc and argv. Throws ErrorCode::transport.
  MpiSession(int& argc, char**& argv);
  /// Waits for all ranks in MPI_Finalize.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Number of ranks on this machine, and this rank's index among them.
  [[nodiscard]] int local_ranks() const noexcept { return local_ranks_; }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  /// Cores for the threads of a rank: the smallest core_share() of all ranks, since results depend on the number of
  /// threads.
  [[nodiscard]] int cores() const noexcept { return cores_; }
  /// Node of every rank, as the lowest rank on it.
  [[nodiscard]] const std::vector<int>& nodes() const noexcept { return nodes_; }

  /// Ends every rank of the job at once with this exit status. Does not return.
  [[noreturn]] void abort(int status);

  /// Waits of the collectives below: who is silent, and for how long a rank may be.
  [[nodiscard]] MpiHeartbeat& heartbeat() noexcept { return *heartbeat_; }
  // Blocking collectives over all ranks, for use before training; never while the loop runs. Each throws as
  // MpiHeartbeat::wait() does.
  void barrier();
  [[nodiscard]] long long smallest(long long value);
  [[nodiscard]] long long largest(long long value);
  [[nodiscard]] long long sum(long long value);
  /// Values of all ranks, by rank.
  [[nodiscard]] std::vector<long long> all(long long value);
  /// Replaces `bytes` by rank 0's content.
  void broadcast(std::vector<std::byte>& bytes);

 private:
  int rank_ = 0;
  int ranks_ = 1;
  int local_rank_ = 0;
  int local_ranks_ = 1;
  int cores_ = 1;
  std::vector<int> nodes_;
  std::optional<MpiHeartbeat> heartbeat_;
};

class MpiTransport final : public Transport, public PollSource {
 public:
  /// Adds itself to the loop's sources. Session and loop outlive it.
  MpiTransport(MpiSession& session, EventLoop& loop);
  ~MpiTransport() override;

  using Transport::receive;
  using Transport::send;
  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override;
  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override;
  [[nodiscard]] std::vector<Pending> pending() const override;
  /// Bytes sent to each rank so far; 0 for this rank itself.
  [[nodiscard]] const std::vector<std::uint64_t>& sent_bytes() const noexcept;

  bool poll() override;
  [[nodiscard]] bool active() const noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
