// Before training starts, whatever fails on one rank ends all of them with one message.
#pragma once

#include "runtime/error.hpp"
#include "runtime/mpi_transport.hpp"

#include <limits>
#include <optional>

namespace ranvier::apps {

/// Thrown on all ranks when one of them failed: all know of it, so the job ends in order.
struct FailedTogether {
  std::optional<Error> error;  ///< on the one rank that reports it
};

/// Runs `work` on all ranks and waits for all. If it threw anywhere, all throw FailedTogether, the lowest
/// such rank with its error. Throws Error, its own first, where the others do not come.
template <typename Work>
void together(runtime::MpiSession& session, Work&& work) {
  std::optional<Error> error;
  try {
    work();
  } catch (const Error& caught) {
    error = caught;
  } catch (const std::exception& caught) {
    error = Error(ErrorCode::internal, caught.what());
  }
  constexpr long long nobody = std::numeric_limits<int>::max();
  long long first = nobody;
  try {
    first = session.smallest(error ? session.rank() : nobody);
  } catch (const Error&) {
    if (error) throw *error;  // more than that the others do not come
    throw;
  }
  if (first == nobody) return;
  throw FailedTogether{first == session.rank() ? error : std::nullopt};
}

}  // namespace ranvier::apps
