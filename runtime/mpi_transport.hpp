// Transport over MPI: Isend and Irecv, completion by Testsome from the loop (Myelin §IV-A). Only the loop's
// thread calls MPI. Every call's result is checked; an error is an Error that names call, peer and tag.
// Completions that are found together run their handlers in the order of the calls.
#pragma once

#include "runtime/mpi_beats.hpp"
#include "runtime/transport.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::runtime {

class BlockingWatch;

/// Whether this MPI says that it sends and receives a GPU's memory itself. After MpiSession is made.
[[nodiscard]] bool mpi_reaches_gpus();

/// Ranks that the launcher (mpirun, srun) started, by its environment variables; 1 if none is set. More than
/// MpiSession::ranks() if the launcher belongs to another MPI: then every process is a world of its own.
[[nodiscard]] int launched_ranks() noexcept;

/// The library and its version, as it calls itself: "Open MPI v4.1.4". Before MPI is initialised, too.
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
  /// Ranks on this machine, and this rank's number among them.
  [[nodiscard]] int local_ranks() const noexcept { return local_ranks_; }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  /// Cores for the threads of a rank: the smallest core_share() of all ranks, since bits depend on their number.
  [[nodiscard]] int cores() const noexcept { return cores_; }
  /// The machine of every rank, as the lowest rank on it.
  [[nodiscard]] const std::vector<int>& nodes() const noexcept { return nodes_; }

  /// Ends every rank of the job at once with this exit status. Does not return.
  [[noreturn]] void abort(int status);

  // Blocking collectives over all ranks, for before training; never while the loop runs. A rank that waits in one goes
  // on waiting as long as the others say that they get on. Each throws ErrorCode::transport, naming the rank, once
  // nothing was heard from one for Waiting::patience.
  struct Waiting {
    Duration patience = std::chrono::minutes(10);
    std::string why;                                ///< it is that long, for people: "ten times --timeout 60"
    std::function<std::string(int rank)> describe;  ///< null: "rank 1"
    BlockingWatch* watch = nullptr;                 ///< knows what this rank does, and is told what it waits for
  };
  void set_waiting(Waiting waiting) { waiting_ = std::move(waiting); }
  /// Tells the others what this rank does, where it has a watch. For while they may wait for it.
  void tell();
  void barrier();
  [[nodiscard]] long long smallest(long long value);
  [[nodiscard]] long long largest(long long value);
  [[nodiscard]] long long sum(long long value);
  /// The value of every rank.
  [[nodiscard]] std::vector<long long> all(long long value);
  /// `bytes` becomes rank 0's; what it was on other ranks is lost.
  void broadcast(std::vector<std::byte>& bytes);

 private:
  /// Until `done` says so.
  void wait(const std::function<bool()>& done);
  [[nodiscard]] std::string describe(int rank) const;
  /// Of those that this one hears from: the one that others wait for, silent for longest.
  [[nodiscard]] std::optional<int> late() const;
  [[nodiscard]] std::string whom_it_waits_for() const;
  void judge(Duration waited) const;

  int rank_ = 0;
  int ranks_ = 1;
  int local_rank_ = 0;
  int local_ranks_ = 1;
  int cores_ = 1;
  std::vector<int> nodes_;
  Waiting waiting_;
  std::uint64_t place_ = 0;  // collectives that it has come to
  std::optional<MpiBeats> beats_;
};

class MpiTransport final : public Transport, public PollSource {
 public:
  /// Adds itself to the loop's sources. Session and loop outlive it.
  MpiTransport(MpiSession& session, EventLoop& loop);
  ~MpiTransport() override;

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int ranks() const noexcept override;
  using Transport::receive;
  using Transport::send;
  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override;
  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override;
  [[nodiscard]] std::vector<Pending> pending() const override;
  /// Bytes of messages that were sent to each rank since the beginning; to oneself: 0.
  [[nodiscard]] const std::vector<std::uint64_t>& sent_bytes() const noexcept;

  bool poll() override;
  [[nodiscard]] bool active() const noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
