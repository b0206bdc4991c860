#include "runtime/transport/mpi_transport.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/mpi_error.hpp"
#include "runtime/files/memory_map.hpp"
#include "runtime/host/cores.hpp"

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <utility>

namespace ranvier::runtime {

namespace {

constexpr std::uint32_t tag_index_limit = 1u << 20;
/// Block size of derived types, whose lengths are ints.
constexpr std::size_t largest_block = std::size_t{1} << 30;

/// Two communicators, chosen by channel, keep tags below 2^23: Open MPI over UCX has no more bits for them.
constexpr std::size_t communicator_count = 2;
constexpr std::size_t communicator_of(Tag tag) {
  return static_cast<std::size_t>(tag.channel) % communicator_count;
}

constexpr int to_mpi(Tag tag) {
  const auto place = static_cast<std::uint32_t>(static_cast<std::size_t>(tag.channel) / communicator_count);
  return static_cast<int>(place * tag_index_limit + tag.index);
}

/// Predicate for MpiHeartbeat::wait(): whether `request` is complete.
std::function<bool()> is_complete(MPI_Request& request) {
  return [&request] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  };
}

long long reduce(long long value, MPI_Op operation, MpiHeartbeat& heartbeat) {
  MPI_Request request = MPI_REQUEST_NULL;
  long long result = 0;
  check_mpi(MPI_Iallreduce(&value, &result, 1, MPI_LONG_LONG, operation, MPI_COMM_WORLD, &request),
            "MPI_Iallreduce");
  heartbeat.wait(is_complete(request));
  return result;
}

/// Arguments that describe one message to MPI. Addresses are relative to the first range, so that a CUDA-aware MPI
/// detects GPU memory: it takes MPI_BOTTOM for host memory.
class Message {
 public:
  template <typename Range>
  explicit Message(std::span<const Range> ranges) {
    std::size_t used = 0, bytes = 0;
    for (const Range& range : ranges) {
      if (range.empty()) continue;
      if (used++ == 0) address_ = const_cast<void*>(static_cast<const void*>(range.data()));
      bytes += range.size();
    }
    if (used <= 1 && bytes <= INT_MAX) {
      count_ = static_cast<int>(bytes);
      return;
    }
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    MPI_Aint first = 0;
    check_mpi(MPI_Get_address(address_, &first), "MPI_Get_address");
    for (const Range& range : ranges) {
      for (std::size_t begin = 0; begin < range.size(); begin += largest_block) {
        MPI_Aint place = 0;
        check_mpi(MPI_Get_address(range.data() + begin, &place), "MPI_Get_address");
        lengths.push_back(static_cast<int>(std::min(largest_block, range.size() - begin)));
        places.push_back(MPI_Aint_diff(place, first));
      }
    }
    count_ = 1;
    check_mpi(
        MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_BYTE, &type_),
        "MPI_Type_create_hindexed");
    check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);  // pending operations keep the type alive
  }

  [[nodiscard]] void* address() const { return address_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  void* address_ = nullptr;
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace

bool mpi_reaches_gpus() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)  // Open MPI
  return MPIX_Query_cuda_support() == 1;
#elif defined(MPIX_GPU_SUPPORT_CUDA)  // MPICH
  int supported = 0;
  check_mpi(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported), "MPIX_GPU_query_support");
  return supported != 0;
#else
  return false;
#endif
}

int launched_ranks() noexcept {
  int ranks = 1;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* const size = std::getenv(variable)) ranks = std::max(ranks, std::atoi(size));
  return ranks;
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  // Open MPI has its package after a comma; MPICH prints "MPICH Version:      4.0.2" and lines of details.
  constexpr std::string_view label = " Version:";
  const std::string_view name(text, std::strcspn(text, ",\n"));
  const std::size_t colon = name.find(label);
  if (colon == std::string_view::npos) return std::string(name);
  const std::size_t number = std::min(name.find_first_not_of(" \t", colon + label.size()), name.size());
  return fmt::format("{} {}", name.substr(0, colon), name.substr(number));
}

MpiSession::MpiSession(int& argc, char**& argv) {
  // If ranks outnumber cores, mpirun makes Open MPI yield in every poll, which can cost a time slice. The loop's idle
  // policy replaces that.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    fail(ErrorCode::transport,
         "this MPI library does not provide MPI_THREAD_FUNNELED; use an MPI library that does");
  }
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
  set_mapping_rank(rank_);
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(node, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &local_ranks_), "MPI_Comm_size");
  std::vector<cpu_set_t> masks(static_cast<std::size_t>(local_ranks_));
  const cpu_set_t mask = affinity_mask();
  check_mpi(MPI_Allgather(&mask, sizeof mask, MPI_BYTE, masks.data(), sizeof mask, MPI_BYTE, node),
            "MPI_Allgather");
  cores_ = core_share(masks, static_cast<std::size_t>(local_rank_), core_quota());
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &cores_, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  int lowest = rank_;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  nodes_.resize(static_cast<std::size_t>(ranks_));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, nodes_.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
  heartbeat_.emplace(rank_, ranks_);
}

MpiSession::~MpiSession() {
  heartbeat_.reset();
  MPI_Finalize();
}

void MpiSession::abort(int status) {
  std::fflush(stdout);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

void MpiSession::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  heartbeat_->wait(is_complete(request));
}

long long MpiSession::smallest(long long value) { return reduce(value, MPI_MIN, *heartbeat_); }
long long MpiSession::largest(long long value) { return reduce(value, MPI_MAX, *heartbeat_); }
long long MpiSession::sum(long long value) { return reduce(value, MPI_SUM, *heartbeat_); }

std::vector<long long> MpiSession::all(long long value) {
  std::vector<long long> values(static_cast<std::size_t>(ranks_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&value, 1, MPI_LONG_LONG, values.data(), 1, MPI_LONG_LONG, MPI_COMM_WORLD, &request),
            "MPI_Iallgather");
  heartbeat_->wait(is_complete(request));
  return values;
}

void MpiSession::broadcast(std::vector<std::byte>& bytes) {
  const auto size = largest(rank_ == 0 ? static_cast<long long>(bytes.size()) : 0);
  expect(size <= INT_MAX, "rank 0 has {} bytes for all ranks, and MPI counts up to {}", size, INT_MAX);
  bytes.resize(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(bytes.data(), static_cast<int>(size), MPI_BYTE, 0, MPI_COMM_WORLD, &request), "MPI_Ibcast");
  heartbeat_->wait(is_complete(request));
}

struct MpiTransport::State {
  struct Operation {
    Pending pending;
    Handler done;
    std::uint64_t number = 0;
  };
  struct Completed {
    Operation operation;
    int code = MPI_SUCCESS;
    std::size_t received = 0;
  };
  template <typename Range>
  struct Local {
    Operation operation;
    std::vector<Range> ranges;
  };

  EventLoop& loop;
  std::array<MPI_Comm, communicator_count> communicators{};
  int rank = 0;
  int ranks = 1;
  std::uint64_t started = 0;
  std::vector<std::uint64_t> sent_bytes;  // by peer

  // Parallel arrays: one entry per pending MPI operation.
  std::vector<MPI_Request> requests;
  std::vector<Operation> operations;

  // Messages to this rank itself, waiting for their counterpart. MPI does not get them: Open MPI 4 writes a message
  // that is too long past the end of its receive.
  std::deque<Local<ConstBytes>> local_sends;
  std::deque<Local<Bytes>> local_receives;

  // Results of Testsome and completed operations; members, so that polling does not allocate.
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
  std::vector<Completed> completed;
  std::size_t next_completed = 0;

  [[nodiscard]] std::string describe_operation(const Pending& pending) const {
    return fmt::format("rank {}: {} rank {}, {}, {} bytes", rank, pending.receives ? "receive from" : "send to",
                       pending.peer, to_string(pending.tag), pending.bytes);
  }

  Operation checked(bool receives, int peer, Tag tag, std::size_t bytes, Handler done) {
    const Pending pending{receives, peer, tag, bytes, loop.now()};
    expect(peer >= 0 && peer < ranks, "{}: there are {} ranks", describe_operation(pending), ranks);
    expect(tag.index < tag_index_limit, "{}: tag indices end at {}", describe_operation(pending), tag_index_limit);
    return {pending, std::move(done), started++};
  }

  /// `begin`: MPI_Isend or MPI_Irecv.
  template <typename Begin>
  void start(Begin begin, const char* call, Operation operation, const Message& message) {
    const Pending& pending = operation.pending;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = begin(message.address(), message.count(), message.type(), pending.peer, to_mpi(pending.tag),
                           communicators[communicator_of(pending.tag)], &request);
    if (code != MPI_SUCCESS) {
      fail(ErrorCode::transport, "{}: {}: {}", describe_operation(pending), call, describe_mpi(code));
    }
    requests.push_back(request);
    operations.push_back(std::move(operation));
    indices.resize(std::max(indices.size(), requests.capacity()));
    statuses.resize(indices.size());
  }

  /// Pairs the first send and the first receive of `tag`, if both exist.
  void match_local(Tag tag) {
    const auto has_tag = [tag](const auto& local) { return local.operation.pending.tag == tag; };
    const auto send = std::find_if(local_sends.begin(), local_sends.end(), has_tag);
    const auto receive = std::find_if(local_receives.begin(), local_receives.end(), has_tag);
    if (send == local_sends.end() || receive == local_receives.end()) return;
    const std::size_t bytes = send->operation.pending.bytes;
    if (bytes == receive->operation.pending.bytes) copy(receive->ranges, send->ranges);
    completed.push_back({std::move(send->operation), MPI_SUCCESS, 0});
    completed.push_back({std::move(receive->operation), MPI_SUCCESS, bytes});
    local_sends.erase(send);
    local_receives.erase(receive);
  }

  static void copy(std::span<const Bytes> to, std::span<const ConstBytes> from) {
    std::size_t used = 0;  // bytes of from.front()
    for (Bytes range : to) {
      while (!range.empty()) {
        const ConstBytes rest = from.front().subspan(used);
        const std::size_t bytes = std::min(range.size(), rest.size());
        std::copy_n(rest.begin(), bytes, range.begin());
        range = range.subspan(bytes);
        used += bytes;
        if (used == from.front().size()) {
          from = from.subspan(1);
          used = 0;
        }
      }
    }
  }

  /// Polls MPI and moves finished operations to `completed`, in the order of the calls.
  void collect() {
    int count = 0;
    const int code =
        MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, indices.data(), statuses.data());
    if (code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
    if (count == MPI_UNDEFINED || count == 0) return;
    const auto first = static_cast<std::ptrdiff_t>(completed.size());
    for (int i = 0; i < count; ++i) {
      // The error fields are valid only with MPI_ERR_IN_STATUS.
      const int own_code = code == MPI_ERR_IN_STATUS ? statuses[i].MPI_ERROR : MPI_SUCCESS;
      Operation& operation = operations[indices[i]];
      const std::size_t received = operation.pending.receives ? received_bytes(statuses[i]) : 0;
      completed.push_back({std::move(operation), own_code, received});
    }
    std::sort(indices.begin(), indices.begin() + count, std::greater<>());
    for (int i = 0; i < count; ++i) {  // the last entry fills the gap; descending order keeps it valid
      requests[indices[i]] = requests.back();
      requests.pop_back();
      if (static_cast<std::size_t>(indices[i]) + 1 != operations.size()) {
        operations[indices[i]] = std::move(operations.back());
      }
      operations.pop_back();
    }
    std::sort(completed.begin() + first, completed.end(), [](const Completed& left, const Completed& right) {
      return left.operation.number < right.operation.number;
    });
  }

  static std::size_t received_bytes(const MPI_Status& status) {
    MPI_Count received = 0;
    check_mpi(MPI_Get_elements_x(&status, MPI_BYTE, &received), "MPI_Get_elements_x");
    return static_cast<std::size_t>(received);
  }

  void check_completed(const Completed& message) const {
    const Pending& pending = message.operation.pending;
    if (message.code != MPI_SUCCESS && message.code != MPI_ERR_TRUNCATE) {
      fail(ErrorCode::transport, "{}: {}", describe_operation(pending), describe_mpi(message.code));
    }
    if (pending.receives && message.received != pending.bytes) {
      fail(ErrorCode::transport, "{}: the message has {} bytes instead of {}", describe_operation(pending),
           message.received, pending.bytes);
    }
  }
};

MpiTransport::MpiTransport(MpiSession& session, EventLoop& loop)
    : Transport(session.rank(), session.ranks()),
      state_(new State{.loop = loop, .rank = session.rank(), .ranks = session.ranks()}) {
  state_->sent_bytes.resize(static_cast<std::size_t>(session.ranks()));
  for (MPI_Comm& communicator : state_->communicators) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  int* limit = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &known), "MPI_Comm_get_attr");
  constexpr int needed = to_mpi({Channel::user, tag_index_limit - 1});
  static_assert(needed < 1 << 23);
  if (!known || *limit < needed) {
    fail(ErrorCode::transport,
         "this MPI library allows message tags up to {}, but {} are needed; use another MPI library",
         known ? *limit : 0, needed);
  }
  loop.add_source(*this);
}

MpiTransport::~MpiTransport() {
  for (std::size_t i = 0; i < state_->requests.size(); ++i) {
    if (state_->operations[i].pending.receives) MPI_Cancel(&state_->requests[i]);
    MPI_Request_free(&state_->requests[i]);  // waiting could block forever
  }
  if (std::uncaught_exceptions() > 0) return;
  for (MPI_Comm& communicator : state_->communicators)
    MPI_Comm_free(&communicator);  // collective: all ranks come here
}

const std::vector<std::uint64_t>& MpiTransport::sent_bytes() const noexcept { return state_->sent_bytes; }

void MpiTransport::send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) {
  State& state = *state_;
  auto operation = state.checked(false, peer, tag, bytes_of(ranges), std::move(done));
  if (peer == state.rank) {
    state.local_sends.push_back({std::move(operation), {ranges.begin(), ranges.end()}});
    return state.match_local(tag);
  }
  state.sent_bytes[static_cast<std::size_t>(peer)] += operation.pending.bytes;
  state.start(MPI_Isend, "MPI_Isend", std::move(operation), Message(ranges));
}

void MpiTransport::receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) {
  State& state = *state_;
  auto operation = state.checked(true, peer, tag, bytes_of(ranges), std::move(done));
  if (peer == state.rank) {
    state.local_receives.push_back({std::move(operation), {ranges.begin(), ranges.end()}});
    return state.match_local(tag);
  }
  state.start(MPI_Irecv, "MPI_Irecv", std::move(operation), Message(ranges));
}

std::vector<Transport::Pending> MpiTransport::pending() const {
  std::vector<Pending> all;
  for (const auto& operation : state_->operations) all.push_back(operation.pending);
  for (const auto& local : state_->local_sends) all.push_back(local.operation.pending);
  for (const auto& local : state_->local_receives) all.push_back(local.operation.pending);
  return all;
}

bool MpiTransport::poll() {
  State& state = *state_;
  auto& completed = state.completed;
  if (!state.requests.empty()) state.collect();
  // Messages to itself that these handlers complete are left for the next poll.
  const std::size_t ready = completed.size();
  while (state.next_completed < ready) {
    const State::Completed message = std::move(completed[state.next_completed++]);
    state.check_completed(message);
    count_completed(message.operation.pending.tag);
    message.operation.done();
  }
  completed.erase(completed.begin(), completed.begin() + static_cast<std::ptrdiff_t>(ready));
  state.next_completed = 0;
  return ready > 0;
}

bool MpiTransport::active() const noexcept { return !state_->requests.empty() || !state_->completed.empty(); }

}  // namespace ranvier::runtime
