// NCCL's communicators of one rank, made all at once: one for each kind of team that the rank's column has, and for the
// rows and columns of a team where hops are hierarchical.
//
// Each belongs to a lane, which is a stream of the GPU: those whose ranks share a node to one, those that cross nodes
// to the other. Where NCCL does not order the kernels of several communicators, both lanes are one stream.
//
// Loop thread only. Errors are thrown on the loop, with rank, device, and the ranks of the communicator.
#pragma once

#include "collectives/communicator_factory.hpp"
#include "collectives/nccl_library.hpp"
#include "collectives/nccl_steps.hpp"
#include "runtime/device.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/transport.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::collectives {

/// Where what stays inside nodes does not wait for what crosses them.
enum class NcclLane : std::size_t { inside, across };
inline constexpr std::size_t nccl_lanes = 2;

/// One communicator of NCCL's.
struct NcclConnection {
  TeamKind team = TeamKind::column;
  NcclSpan span = NcclSpan::team;
  std::vector<int> ranks;  ///< MPI ranks, in NCCL's order
  int me = 0;
  NcclLane lane = NcclLane::inside;
  NcclLibrary::Id id = {};
  NcclLibrary::Handle handle = nullptr;
};

class NcclConnections final : public std::enable_shared_from_this<NcclConnections> {
 public:
  /// All outlive it but for its own handlers, which do nothing once it is closed. `timeout`: for peers to connect.
  NcclConnections(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                  NcclLibrary& library, runtime::Duration timeout);

  /// Those of a team, before connect(): of the whole, and if `hierarchical` of its rows and columns.
  void add(TeamKind team, const PlanCommunicator::Options& options, bool hierarchical);

  /// Makes them with the other ranks, all of which call this; then calls `done` on the loop. Throws
  /// ErrorCode::transport on the loop where one of them does not come.
  void connect(runtime::Handler done);
  [[nodiscard]] bool connected() const noexcept { return connected_; }

  [[nodiscard]] const NcclConnection& of(TeamKind team, NcclSpan span) const;
  /// Whether there are others than of whole teams.
  [[nodiscard]] bool hierarchical() const noexcept;
  /// Whether both lanes are in use, and streams of their own.
  [[nodiscard]] bool overlap() const noexcept;
  /// By the stream: inside for all where both lanes are one.
  [[nodiscard]] NcclLane lane(const NcclConnection& connection) const noexcept;
  [[nodiscard]] runtime::Stream& stream(NcclLane lane) const;

  /// The first one of which NCCL has something else to say than that all is well or under way; null: none.
  [[nodiscard]] std::pair<const NcclConnection*, NcclLibrary::Result> failed() const;
  /// Throws what NCCL says of a call, unless it went well or goes on. `doing`: for people.
  void check(NcclLibrary::Result result, const NcclConnection& connection, const std::string& doing) const;
  [[nodiscard]] std::string ranks_text(const NcclConnection& connection) const;

  /// Frees them: orderly, or whatever is under way on the GPU. May be called again.
  void close(bool orderly) noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// After close(), while handlers may still be held by the transport.
  void free_streams() noexcept { streams_.clear(); }

 private:
  using Key = std::pair<TeamKind, NcclSpan>;

  void connect_next();
  void begin(NcclConnection& connection, runtime::Duration since);
  void await_connected(NcclConnection& connection, runtime::Duration since);
  [[nodiscard]] std::string text_of_connecting(const NcclConnection& connection) const;

  runtime::EventLoop& loop_;
  runtime::Transport& transport_;
  runtime::Device& gpu_;
  NcclLibrary& library_;
  runtime::Duration timeout_;
  bool connected_ = false;
  bool closed_ = false;
  std::vector<std::unique_ptr<runtime::Stream>> streams_;  ///< by lane, or one for both
  std::map<Key, NcclConnection> connections_;              ///< in the order that they are made in
  std::map<Key, NcclConnection>::iterator next_;
  runtime::Handler when_connected_;
};

}  // namespace ranvier::collectives
