// Error handling before training: an error on one rank ends all ranks with one message.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Thrown on all ranks after an error on one of them, so that the job ends in order.
struct FailedTogether {
  ErrorCode code;              ///< code of the error, equal on all ranks
  std::optional<Error> error;  ///< set only on the rank that prints it
};

/// Runs `work` on all ranks and waits for all. If it throws on any rank, all throw FailedTogether, and the lowest such
/// rank has the error. If other ranks do not arrive, throws this rank's error, else the transport's.
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
  constexpr long long codes = 1 << 8;  // more than the number of codes
  constexpr long long nobody = std::numeric_limits<long long>::max();
  long long first = nobody;
  try {
    first = session.smallest(error ? session.rank() * codes + static_cast<long long>(error->code()) : nobody);
  } catch (const Error&) {
    if (error) throw *error;  // more useful than the missing ranks
    throw;
  }
  if (first == nobody) return;
  throw FailedTogether{static_cast<ErrorCode>(first % codes),
                       first / codes == session.rank() ? error : std::nullopt};
}

/// Runs `work` on rank 0, while the others wait. Throws as on_all_ranks() does.
template <typename Work>
void on_rank_0(runtime::MpiSession& session, Work&& work) {
  on_all_ranks(session, [&] {
    if (session.rank() == 0) work();
  });
}

/// Smallest number of bytes of the ranks that know one; none if no rank does. Collective.
[[nodiscard]] inline std::optional<std::size_t> smallest_bytes(runtime::MpiSession& session,
                                                               std::optional<std::size_t> bytes) {
  constexpr long long unknown = std::numeric_limits<long long>::max();
  const long long smallest =
      session.smallest(static_cast<long long>(std::min(bytes.value_or(unknown), std::size_t{unknown})));
  return smallest == unknown ? std::nullopt : std::optional(static_cast<std::size_t>(smallest));
}

/// Returns the text of rank 0 on all ranks. Collective.
[[nodiscard]] inline std::string broadcast_text(runtime::MpiSession& session, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  session.broadcast(all);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

}  // namespace ranvier::apps
