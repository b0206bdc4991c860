// Base class of a rank's actors: name, pending waits, peers, saved scalars. Watchdog, reports and checkpoints use this
// interface, so a new actor needs its own files and one line in Rank. Loop thread only.
//
// An actor registers its work on streams, files or host threads by EventLoop::after_work() and ends(), under its name.
#pragma once

#include "collectives/plans/plan.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"
#include "runtime/liveness/pending_work.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ranvier::actors {

/// An actor's wait for other ranks.
struct Wait {
  std::string what;           ///< "the gather of the parameters of h.3 for a backward pass"
  std::optional<int> rank;    ///< awaited rank, if it is a single one
  runtime::Duration since{};  ///< loop time
};

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}
inline void oldest_first(std::vector<Wait>& waits) { std::ranges::stable_sort(waits, {}, &Wait::since); }

/// A named number or list of numbers of training state, identical on all ranks.
struct StateScalar {
  std::string name;  ///< "next_sample"
  std::variant<std::int64_t, double, std::vector<std::int64_t>, std::vector<double>> value;

  friend bool operator==(const StateScalar&, const StateScalar&) = default;
};

class Actor {
 public:
  virtual ~Actor() = default;

  /// Name in messages and WorkName::part: "gradients".
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Current waits for other ranks, oldest first.
  [[nodiscard]] virtual std::vector<Wait> waits() const { return {}; }
  /// Progress of local work for messages: "in layer h.5"; empty: unknown.
  [[nodiscard]] virtual std::string details() const { return {}; }
  /// Ranks that exchange messages with this actor; symmetric.
  [[nodiscard]] virtual std::vector<int> peers() const { return {}; }

  /// Numbers to save in checkpoints: all that the following steps depend on.
  [[nodiscard]] virtual std::vector<StateScalar> scalars() const { return {}; }
  /// Restores scalars before training. `all` contains the scalars of all actors; missing ones stay unchanged.
  virtual void restore_scalars([[maybe_unused]] std::span<const StateScalar> all) {}
};

/// Value of the scalar `name`; none: missing, or of another type.
template <typename T>
[[nodiscard]] std::optional<T> find_scalar(std::span<const StateScalar> all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &StateScalar::name);
  if (found == all.end() || !std::holds_alternative<T>(found->value)) return std::nullopt;
  return std::get<T>(found->value);
}

}  // namespace ranvier::actors
