#include "runtime/liveness/mpi_heartbeat.hpp"

#include "runtime/base/mpi_error.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <map>

namespace ranvier::runtime {

namespace {

/// Message as sent; small enough to be sent eagerly by every MPI.
struct Beat {
  std::uint64_t place = 0;
  std::array<char, 248> does{};  // zero-terminated
};

}  // namespace

struct MpiHeartbeat::State {
  struct Sent {
    Beat beat;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  MPI_Comm communicator = MPI_COMM_NULL;
  std::map<int, Sent> sent;  // by peer; MPI reads the entries, so they must not move
};

MpiHeartbeat::MpiHeartbeat(int rank, int ranks)
    : rank_(rank), ranks_(ranks), peers_(static_cast<std::size_t>(ranks)), state_(std::make_unique<State>()) {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &state_->communicator), "MPI_Comm_dup");
}

MpiHeartbeat::~MpiHeartbeat() {
  bool all_gone = true;
  for (auto& [peer, sent] : state_->sent) {
    int done = 1;
    if (sent.request != MPI_REQUEST_NULL) MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
    all_gone = all_gone && done != 0;
  }
  // A peer that receives no more would block this forever, and MPI may still read pending messages.
  if (!all_gone) static_cast<void>(state_.release());
}

std::vector<int> MpiHeartbeat::sources() const {
  if (rank_ != 0) return {0};
  std::vector<int> all;
  for (int peer = 1; peer < ranks_; ++peer) all.push_back(peer);
  return all;
}

void MpiHeartbeat::send(std::uint64_t place, const std::string& does) {
  for (const int peer : sources()) {  // messages go both ways between a rank and its sources()
    State::Sent& sent = state_->sent[peer];
    int done = 1;
    if (sent.request != MPI_REQUEST_NULL) check_mpi(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) continue;
    sent.beat = {.place = place, .does = {}};
    std::copy_n(does.data(), std::min(does.size(), sent.beat.does.size() - 1), sent.beat.does.data());
    check_mpi(MPI_Isend(&sent.beat, sizeof(Beat), MPI_BYTE, peer, 0, state_->communicator, &sent.request),
              "MPI_Isend");
  }
}

void MpiHeartbeat::poll() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, 0, state_->communicator, &there, &status), "MPI_Iprobe");
    if (there == 0) return;
    Beat beat;
    check_mpi(MPI_Recv(&beat, sizeof beat, MPI_BYTE, status.MPI_SOURCE, 0, state_->communicator, MPI_STATUS_IGNORE),
              "MPI_Recv");
    peers_[static_cast<std::size_t>(status.MPI_SOURCE)] = {beat.place, beat.does.data(), {}};
  }
}

void MpiHeartbeat::pass(Duration time) {
  for (PeerStatus& one : peers_) one.silent += time;
}

void MpiHeartbeat::reset_timeouts() {
  for (PeerStatus& one : peers_) one.silent = {};
}

}  // namespace ranvier::runtime
