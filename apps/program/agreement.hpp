// Before training starts, whatever fails on one rank ends all of them with one message.
#pragma once

#include "runtime/exit_code.hpp"
#include "runtime/mpi_transport.hpp"

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Thrown on all ranks when one of them failed: all know of it, so the job ends in order.
struct FailedTogether {
  ErrorCode code;              ///< of that failure, the same on all ranks
  std::optional<Error> error;  ///< on the one rank that reports it
};

/// Runs `work` on all ranks and waits for all. If it threw anywhere, all throw FailedTogether, the lowest
/// such rank with its error. Throws Error, its own first, where the others do not come.
template <typename Work>
void on_all_ranks(runtime::MpiSession& session, Work&& work) {
  std::optional<Error> error;
  try {
    work();
  } catch (const Error& caught) {
    error = caught;
  } catch (const std::exception& caught) {
    error = Error(error_code(caught), caught.what());
  }
  constexpr long long codes = 1 << 8;  // more than there are
  constexpr long long nobody = std::numeric_limits<long long>::max();
  long long first = nobody;
  try {
    first = session.smallest(error ? session.rank() * codes + static_cast<long long>(error->code()) : nobody);
  } catch (const Error&) {
    if (error) throw *error;  // more than that the others do not come
    throw;
  }
  if (first == nobody) return;
  throw FailedTogether{static_cast<ErrorCode>(first % codes),
                       first / codes == session.rank() ? error : std::nullopt};
}

/// Rank 0's, on all ranks.
[[nodiscard]] inline std::string broadcast_text(runtime::MpiSession& session, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  session.broadcast(all);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

}  // namespace ranvier::apps
