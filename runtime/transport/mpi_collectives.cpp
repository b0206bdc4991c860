#include "runtime/transport/mpi_collectives.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/mpi_error.hpp"

#include <mpi.h>

#include <climits>
#include <cstring>
#include <exception>
#include <utility>

namespace ranvier::runtime {

namespace {

/// MPI type to add, if MPI can; else an integer type of the same size.
MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::bf16:
    case DType::f16:
      return MPI_UINT16_T;
    case DType::i8:
    case DType::u8:
      break;
  }
  fail(ErrorCode::internal, "unknown element type: number {}", static_cast<int>(dtype));
}

}  // namespace

struct MpiCollectives::State {
  [[nodiscard]] int count(std::size_t elements) const {
    if (elements > INT_MAX) {
      fail(ErrorCode::transport, "MPI's collectives take {} elements at most, not {}: use plans", INT_MAX,
           elements);
    }
    return static_cast<int>(elements);
  }

  /// Elements of one shard.
  [[nodiscard]] int piece_count(std::size_t elements) const {
    expect(elements % static_cast<std::size_t>(ranks) == 0, "{} elements do not divide by {} ranks", elements,
           ranks);
    return count(elements / static_cast<std::size_t>(ranks));
  }

  MPI_Comm communicator = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;

  // Parallel arrays: one entry per pending MPI operation.
  std::vector<MPI_Request> requests;
  std::vector<Handler> handlers;

  std::vector<int> indices;  ///< results of Testsome
};

MpiCollectives::MpiCollectives(MpiSession&, EventLoop& loop, const std::vector<int>& ranks) : state_(new State) {
  MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &state_->communicator), "MPI_Comm_create_group");
  check_mpi(MPI_Group_free(&group), "MPI_Group_free");
  check_mpi(MPI_Group_free(&all), "MPI_Group_free");
  check_mpi(MPI_Comm_set_errhandler(state_->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(state_->communicator, &state_->rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(state_->communicator, &state_->ranks), "MPI_Comm_size");
  loop.add_source(*this);
}

MpiCollectives::~MpiCollectives() {
  // Collectives cannot be canceled, and MPI_Comm_free is collective: call it only if all ranks get here.
  if (state_->requests.empty() && std::uncaught_exceptions() == 0) MPI_Comm_free(&state_->communicator);
}

bool MpiCollectives::adds(DType dtype) noexcept { return dtype != DType::bf16 && dtype != DType::f16; }

void MpiCollectives::all_gather(std::byte* data, std::size_t elements, DType dtype, Handler done) {
  State& state = *state_;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, state.piece_count(elements), type_of(dtype),
                           state.communicator, &request),
            "MPI_Iallgather");
  state.requests.push_back(request);
  state.handlers.push_back(std::move(done));
}

void MpiCollectives::reduce_scatter(std::byte* data, std::size_t elements, DType dtype, Handler done) {
  State& state = *state_;
  expect(adds(dtype), "MPI does not add {}", to_string(dtype));
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = state.piece_count(elements);
  check_mpi(
      MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, count, type_of(dtype), MPI_SUM, state.communicator, &request),
      "MPI_Ireduce_scatter_block");
  state.requests.push_back(request);
  // An in-place MPI_Ireduce_scatter_block leaves the result at the start of the buffer.
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  const std::size_t offset = static_cast<std::size_t>(state.rank) * bytes;
  state.handlers.push_back([data, bytes, offset, done = std::move(done)] {
    if (offset > 0) std::memcpy(data + offset, data, bytes);
    done();
  });
}

void MpiCollectives::all_reduce(std::byte* data, std::size_t elements, DType dtype, Handler done) {
  State& state = *state_;
  expect(adds(dtype), "MPI does not add {}", to_string(dtype));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data, state.count(elements), type_of(dtype), MPI_SUM, state.communicator,
                           &request),
            "MPI_Iallreduce");
  state.requests.push_back(request);
  state.handlers.push_back(std::move(done));
}

bool MpiCollectives::poll() {
  State& state = *state_;
  if (state.requests.empty()) return false;
  state.indices.resize(state.requests.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(state.requests.size()), state.requests.data(), &count,
                         state.indices.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count == MPI_UNDEFINED || count == 0) return false;
  // Runs handlers in the order of the calls. They may start further operations.
  std::vector<Handler> completed;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < state.requests.size(); ++i) {
    if (state.requests[i] == MPI_REQUEST_NULL) {
      completed.push_back(std::move(state.handlers[i]));
    } else {
      state.requests[kept] = state.requests[i];
      if (kept != i) state.handlers[kept] = std::move(state.handlers[i]);
      ++kept;
    }
  }
  state.requests.resize(kept);
  state.handlers.resize(kept);
  for (const Handler& handler : completed) handler();
  return true;
}

bool MpiCollectives::active() const noexcept { return !state_->requests.empty(); }

}  // namespace ranvier::runtime
