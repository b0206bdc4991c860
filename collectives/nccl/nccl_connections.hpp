// Creates one rank's NCCL communicators: one per kind of team of the rank's column, and for the rows and columns of
// hierarchical teams.
//
// Each belongs to a lane, a stream of the GPU: one for communicators inside nodes, one for those across nodes. If
// NCCL does not order the kernels of several communicators, both lanes are one stream.
//
// Loop thread only. Errors are thrown on the loop, with rank, device, and the ranks of the communicator.
#pragma once

#include "collectives/communicators/communicator_factory.hpp"
#include "collectives/nccl/nccl_library.hpp"
#include "collectives/nccl/nccl_steps.hpp"
#include "runtime/device/device.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/transport/transport.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::collectives {

/// Separate lanes, so that operations inside nodes do not wait for those across nodes.
enum class NcclLane : std::size_t { inside, across };
inline constexpr std::size_t nccl_lanes = 2;

/// Handler that calls `function` with the object, unless it is gone or closed by then.
template <typename Object, typename Function>
[[nodiscard]] runtime::Handler unless_closed(std::weak_ptr<Object> object, Function function) {
  return [object = std::move(object), function = std::move(function)] {
    if (const auto self = object.lock(); self && !self->closed()) function(*self);
  };
}

/// An NCCL communicator.
struct NcclConnection {
  TeamKind team = TeamKind::column;
  NcclSpan span = NcclSpan::team;
  std::vector<int> ranks;  ///< MPI ranks, in NCCL's order
  int me = 0;
  NcclLane lane = NcclLane::inside;  ///< lane of its stream; `inside` if there is only one stream
  NcclLibrary::Id id = {};
  NcclLibrary::Handle handle = nullptr;
};

class NcclConnections final : public std::enable_shared_from_this<NcclConnections> {
 public:
  /// All arguments must outlive it, except for its own handlers, which do nothing after close(). `timeout`: for peers
  /// to connect.
  NcclConnections(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                  NcclLibrary& library, runtime::Duration timeout);

  /// Adds the communicator of a team, and if `hierarchical` the communicators of its rows and columns. Call before
  /// connect().
  void add(TeamKind team, const PlanCommunicator::Options& options, bool hierarchical);

  /// Creates them; collective over the column. Then calls `done` on the loop. Throws ErrorCode::transport on the loop
  /// if a rank is missing.
  void connect(runtime::Handler done);
  [[nodiscard]] bool connected() const noexcept { return connected_; }

  [[nodiscard]] const NcclConnection& of(TeamKind team, NcclSpan span) const;
  /// Whether any team is hierarchical.
  [[nodiscard]] bool hierarchical() const noexcept;
  /// Whether both lanes are in use.
  [[nodiscard]] bool overlap() const noexcept;
  [[nodiscard]] runtime::Stream& stream(NcclLane lane) const { return *streams_[static_cast<std::size_t>(lane)]; }

  /// First communicator with an error; null: none.
  [[nodiscard]] std::pair<const NcclConnection*, NcclLibrary::Result> failed() const;
  /// Throws unless the call succeeded or is in progress. `doing`: description for the user.
  void check(NcclLibrary::Result result, const NcclConnection& connection, const std::string& doing) const;
  [[nodiscard]] std::string ranks_text(const NcclConnection& connection) const;

  /// Frees them: gracefully, or aborting running operations. May be called again.
  void close(bool orderly) noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// Call after close(), while the transport may still hold handlers.
  void free_streams() noexcept { streams_.clear(); }

 private:
  using Key = std::pair<TeamKind, NcclSpan>;

  void connect_next();
  void begin(NcclConnection& connection, runtime::Duration since);
  void await_connected(NcclConnection& connection, runtime::Duration since);
  void check_connecting(NcclLibrary::Result result, const NcclConnection& connection) const;

  runtime::EventLoop& loop_;
  runtime::Transport& transport_;
  runtime::Device& gpu_;
  NcclLibrary& library_;
  runtime::Duration timeout_;
  bool connected_ = false;
  bool closed_ = false;
  std::vector<std::unique_ptr<runtime::Stream>> streams_;  ///< by lane, or one for both
  std::map<Key, NcclConnection> connections_;              ///< in the order of creation
  std::map<Key, NcclConnection>::iterator next_;
  runtime::Handler when_connected_;
};

}  // namespace ranvier::collectives
