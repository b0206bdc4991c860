// Before training starts, whatever fails on one rank ends all of them with one message.
#pragma once

#include "runtime/error.hpp"
#include "runtime/mpi_transport.hpp"

#include <limits>
#include <optional>

namespace ranvier::apps {

/// Thrown on a rank whose job ends because of another rank's error, which that one reports.
struct EndedByOtherRank {};

/// Runs `work` on all ranks and waits for all. If it threw anywhere, the lowest such rank throws its own
/// error here and the others throw EndedByOtherRank.
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
  const long long first = session.smallest(error ? session.rank() : nobody);
  if (first == nobody) return;
  if (first != session.rank()) throw EndedByOtherRank{};
  throw *error;
}

}  // namespace ranvier::apps
