#include "runtime/liveness/mpi_heartbeat.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/mpi_error.hpp"
#include "runtime/liveness/thread_watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

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

void MpiHeartbeat::send() {
  const std::string does = options_.watch != nullptr ? options_.watch->doing() : "";
  for (const int peer : sources()) {  // messages go both ways between a rank and its sources()
    State::Sent& sent = state_->sent[peer];
    int done = 1;
    if (sent.request != MPI_REQUEST_NULL) check_mpi(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) continue;
    sent.beat = {.place = place_, .does = {}};
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

std::string MpiHeartbeat::describe(int rank) const {
  return options_.describe ? options_.describe(rank) : fmt::format("rank {}", rank);
}

std::optional<int> MpiHeartbeat::late() const {
  std::optional<int> found;
  for (const int rank : sources()) {
    const PeerStatus& one = peers_[static_cast<std::size_t>(rank)];
    if (one.place >= place_) continue;
    if (!found || one.silent > peers_[static_cast<std::size_t>(*found)].silent) found = rank;
  }
  return found;
}

std::string MpiHeartbeat::whom_it_waits_for() const {
  const auto late = this->late();
  if (rank_ == 0 && !late) return "all ranks, which have reached the same point";
  const PeerStatus& one = peers_[static_cast<std::size_t>(late.value_or(0))];
  return fmt::format("{}, which {}", describe(late.value_or(0)),
                     one.does.empty() ? "has not reported its work" : one.does);
}

void MpiHeartbeat::judge(Duration waited) const {
  const auto late = this->late();
  int lost = -1;
  for (const int rank : sources()) {
    const bool silent = peers_[static_cast<std::size_t>(rank)].silent >= options_.patience;
    if (silent && (lost < 0 || rank == late)) lost = rank;
  }
  const std::string why = options_.why.empty() ? "" : " (" + options_.why + ")";
  if (lost >= 0) {
    const PeerStatus& one = peers_[static_cast<std::size_t>(lost)];
    fail(ErrorCode::transport,
         "{} does not answer: {} has waited for it for {:.1f} s outside of a step; no message from it for {:.1f} "
         "s{}{}",
         describe(lost), describe(rank_), seconds(waited), seconds(one.silent), why,
         one.does.empty() ? "" : "; its last report: it " + one.does);
  }
  if (rank_ == 0 && waited >= options_.patience && !late)
    fail(ErrorCode::transport,
         "all ranks have reached the same point as {}, but MPI has not completed the operation for {:.1f} s{}",
         describe(rank_), seconds(waited), why);
}

void MpiHeartbeat::wait(const std::function<bool()>& done) {
  using namespace std::chrono_literals;
  ++place_;
  if (done()) return;
  constexpr Duration look_every = 10ms, max_at_once = 1s;  // a longer gap means that the process was stopped
  const Duration report_every = std::clamp<Duration>(options_.patience / 40, 50ms, 5s);
  for (PeerStatus& one : peers_) one.silent = {};
  Duration waited{}, said_at = -report_every;
  auto looked = std::chrono::steady_clock::now();
  while (!done()) {
    std::this_thread::sleep_for(20us);  // leaves the core to ranks that compute
    const Duration passed = std::min<Duration>(std::chrono::steady_clock::now() - looked, max_at_once);
    if (passed < look_every) continue;
    looked = std::chrono::steady_clock::now();
    waited += passed;
    for (PeerStatus& one : peers_) one.silent += passed;
    poll();
    if (options_.watch != nullptr) options_.watch->waits_for(whom_it_waits_for());
    if (waited - said_at >= report_every) {
      said_at = waited;
      send();
    }
    judge(waited);
  }
  if (options_.watch != nullptr) options_.watch->waits_for({});
}

}  // namespace ranvier::runtime
