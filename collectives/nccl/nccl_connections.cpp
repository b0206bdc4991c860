#include "collectives/nccl/nccl_connections.hpp"

#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

namespace ranvier::collectives {

using runtime::Channel;
using runtime::Duration;
using runtime::Handler;
using runtime::Tag;

namespace {

constexpr Duration ask_again = std::chrono::microseconds(100);  // polling interval for work of NCCL's threads

// Index in Channel::control; smaller ones belong to the watchdog and to the order of phases (nccl_phases.cpp).
constexpr std::uint32_t first_id_index = 3;

bool is_error(NcclLibrary::Result result) {
  return result != NcclLibrary::success && result != NcclLibrary::in_progress;
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

NcclConnections::NcclConnections(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device,
                                 NcclLibrary& library, Duration timeout)
    : loop_(loop), transport_(transport), gpu_(device), library_(library), timeout_(timeout) {
  const bool two = library.keeps_launch_order();
  streams_.push_back(gpu_.make_stream(two ? "nccl inside" : "nccl", runtime::StreamWidth::one));
  if (two) streams_.push_back(gpu_.make_stream("nccl across", runtime::StreamWidth::one));
}

void NcclConnections::add(TeamKind team, const PlanCommunicator::Options& options, bool hierarchical) {
  const Topology& topology = options.team.topology;
  const auto add_span = [&](NcclSpan span) {
    NcclConnection made{.team = team, .span = span, .ranks = {}};
    const std::vector<int> members = nccl_members(topology, options.me, span);
    for (std::size_t place = 0; place < members.size(); ++place) {
      made.ranks.push_back(options.ranks.at(static_cast<std::size_t>(members[place])));
      if (members[place] == options.me) made.me = static_cast<int>(place);
      if (streams_.size() > 1 && !topology.same_node(members[place], options.me)) made.lane = NcclLane::across;
    }
    connections_.try_emplace({team, span}, std::move(made));
  };
  add_span(NcclSpan::team);
  if (!hierarchical || topology.inner == 1 || topology.outer == 1) return;
  add_span(NcclSpan::row);
  add_span(NcclSpan::column);
}

void NcclConnections::connect(Handler done) {
  when_connected_ = std::move(done);
  next_ = connections_.begin();
  loop_.post(unless_closed(weak_from_this(), [](NcclConnections& self) { self.connect_next(); }));
}

/// Creates communicators one after another, in the same order on all ranks. The ranks of a communicator share the rows
/// of a grid with the ranks of the others, so no cycle of waiting ranks arises.
void NcclConnections::connect_next() {
  if (next_ == connections_.end()) {
    connected_ = true;
    return std::exchange(when_connected_, nullptr)();
  }
  NcclConnection& connection = next_->second;
  const auto place = static_cast<int>(connection.team) * nccl_spans + static_cast<int>(connection.span);
  const Tag tag{Channel::control, first_id_index + static_cast<std::uint32_t>(place)};
  const Duration since = loop_.now();
  if (connection.me != 0) {
    const auto late = [&connection](const NcclConnections& self) {
      if (connection.handle != nullptr) return;
      fail(ErrorCode::transport,
           "rank {} has not sent its NCCL address: rank {} has waited {:g} s to connect the "
           "{} (`timeout`)",
           connection.ranks.front(), self.transport_.rank(), seconds(self.timeout_), to_string(connection.team));
    };
    loop_.after(timeout_, unless_closed(weak_from_this(), late));
    transport_.receive(connection.ranks.front(), tag, connection.id.bytes,
                       [self = shared_from_this(), &connection, since] {
                         if (!self->closed_) self->begin(connection, since);
                       });
    return;
  }
  check_connecting(library_.make_id(connection.id), connection);
  for (std::size_t other = 1; other < connection.ranks.size(); ++other) {
    transport_.send(connection.ranks[other], tag, connection.id.bytes, [self = shared_from_this()] {});
  }
  begin(connection, since);
}

void NcclConnections::begin(NcclConnection& connection, Duration since) {
  check_connecting(library_.connect(connection.handle, connection.id, static_cast<int>(connection.ranks.size()),
                                    connection.me, stream(connection.lane)),
                   connection);
  await_connected(connection, since);
}

void NcclConnections::await_connected(NcclConnection& connection, Duration since) {
  const NcclLibrary::Result result = library_.status(connection.handle);
  check_connecting(result, connection);
  if (result == NcclLibrary::success) {
    ++next_;
    // `done` must not run inside the caller's call of connect().
    return loop_.post(unless_closed(weak_from_this(), [](NcclConnections& self) { self.connect_next(); }));
  }
  if (loop_.now() - since > timeout_) {
    fail(ErrorCode::transport,
         "rank {} on {}: NCCL did not connect the {}, {}, within {:g} s: one of them is silent or cannot be "
         "reached (`timeout`); NCCL_DEBUG=INFO prints the interfaces it tries",
         transport_.rank(), gpu_.description(), to_string(connection.team), ranks_text(connection),
         seconds(timeout_));
  }
  const auto again = [&connection, since](NcclConnections& self) { self.await_connected(connection, since); };
  loop_.after(ask_again, unless_closed(weak_from_this(), again));
}

const NcclConnection& NcclConnections::of(TeamKind team, NcclSpan span) const {
  const auto found = connections_.find({team, span});
  expect(found != connections_.end(), "the {} has no NCCL communicator", to_string(team));
  return found->second;
}

bool NcclConnections::hierarchical() const noexcept {
  return std::ranges::any_of(connections_, [](const auto& entry) { return entry.second.span != NcclSpan::team; });
}

bool NcclConnections::overlap() const noexcept {
  const auto used = [this](NcclLane lane) {
    return std::ranges::any_of(connections_, [lane](const auto& entry) { return entry.second.lane == lane; });
  };
  return used(NcclLane::inside) && used(NcclLane::across);
}

std::pair<const NcclConnection*, NcclLibrary::Result> NcclConnections::failed() const {
  for (const auto& [key, connection] : connections_) {
    const NcclLibrary::Result result = library_.status(connection.handle);
    if (is_error(result)) return {&connection, result};
  }
  return {nullptr, NcclLibrary::success};
}

void NcclConnections::check(NcclLibrary::Result result, const NcclConnection& connection,
                            const std::string& doing) const {
  if (!is_error(result)) return;
  // Errors caused by peers have ErrorCode::transport, so that the job prints one of them only.
  const bool about_peers = result == NcclLibrary::remote_error || result == NcclLibrary::system_error;
  const std::string text = fmt::format("{} on {}: NCCL, with {}: {}", doing, gpu_.description(),
                                       ranks_text(connection), library_.describe(result, connection.handle));
  if (!about_peers) fail(ErrorCode::device, "{}; NCCL_DEBUG=WARN prints details", text);
  fail(ErrorCode::transport, "rank {}: {}; a peer exited or its network failed, NCCL_DEBUG=WARN prints details",
       transport_.rank(), text);
}

std::string NcclConnections::ranks_text(const NcclConnection& connection) const {
  return fmt::format("ranks {}", fmt::join(connection.ranks, ", "));
}

void NcclConnections::check_connecting(NcclLibrary::Result result, const NcclConnection& connection) const {
  check(result, connection, fmt::format("connecting the {}", to_string(connection.team)));
}

void NcclConnections::close(bool orderly) noexcept {
  if (std::exchange(closed_, true)) return;
  for (auto& [key, connection] : connections_) {
    const NcclLibrary::Handle handle = std::exchange(connection.handle, nullptr);
    if (handle == nullptr) continue;
    if (orderly && connected_) {
      library_.close(handle);
    } else {
      library_.abort(handle);
    }
  }
}

}  // namespace ranvier::collectives
