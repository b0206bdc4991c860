// Transport over MPI: Isend and Irecv, completion by Testsome from the loop (Myelin §IV-A). Only the loop's
// thread calls MPI. Every call's result is checked; an error is an Error that names call, peer and tag.
// Completions that are found together run their handlers in the order of the calls.
#pragma once

#include "runtime/transport.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::runtime {

/// Whether this MPI says that it sends and receives a GPU's memory itself. After MpiSession is made.
[[nodiscard]] bool mpi_reaches_gpus();

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
  /// The machine of every rank, as the lowest rank on it.
  [[nodiscard]] const std::vector<int>& nodes() const noexcept { return nodes_; }

  /// Ends every rank of the job at once with this exit status. Does not return.
  [[noreturn]] void abort(int status);

  // Blocking collectives over all ranks, for before training; never while the loop runs. Each throws
  // ErrorCode::transport when other ranks keep this one waiting for longer than set_patience() says.
  void set_patience(std::chrono::duration<double> patience) { patience_ = patience; }
  void barrier();
  [[nodiscard]] long long smallest(long long value);
  [[nodiscard]] long long largest(long long value);
  [[nodiscard]] long long sum(long long value);
  /// The value of every rank.
  [[nodiscard]] std::vector<long long> all(long long value);
  /// `bytes` becomes rank 0's; what it was on other ranks is lost.
  void broadcast(std::vector<std::byte>& bytes);

 private:
  int rank_ = 0;
  int ranks_ = 1;
  int local_rank_ = 0;
  int local_ranks_ = 1;
  std::vector<int> nodes_;
  std::chrono::duration<double> patience_ = std::chrono::minutes(10);
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
