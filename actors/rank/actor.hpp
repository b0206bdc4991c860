// What every part of a rank answers, whatever it does: so that the watchdog, reports of a rank that hangs and
// checkpoints follow from the parts, and a new part is its own files and one line in Rank. Loop thread only.
//
// Work of the part's own, on streams, in files or on threads of the host, it begins by EventLoop::after_work() and
// ends(), under its name: nobody has to ask for that.
#pragma once

#include "collectives/plan.hpp"
#include "runtime/dtype.hpp"
#include "runtime/error.hpp"
#include "runtime/pending_work.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ranvier::actors {

/// Something that other ranks have to do before a part can go on.
struct Wait {
  std::string what;           ///< "the gather of the parameters of h.3 for a backward pass"
  std::optional<int> rank;    ///< whose turn it is, where it is one rank's
  runtime::Duration since{};  ///< loop time
};

inline void oldest_first(std::vector<Wait>& waits) {
  std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.since < b.since; });
}

/// A named array of training state, of which a part holds some elements on this rank.
struct StateArray {
  std::size_t unit = 0;      ///< of the stage
  const char* name = "";     ///< "weights", "m", "v"
  collectives::Range range;  ///< elements of the unit
  runtime::DType dtype = runtime::DType::f32;
};

/// A named number of training state, or a row of them, which all ranks have alike.
struct StateScalar {
  std::string name;  ///< "next_sample"
  std::variant<std::int64_t, double, std::vector<std::int64_t>, std::vector<double>> value;

  friend bool operator==(const StateScalar&, const StateScalar&) = default;
};

class Actor {
 public:
  virtual ~Actor() = default;

  /// For people, and WorkName::part of its own work: "gradients".
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// What it waits for from other ranks now, the oldest first.
  [[nodiscard]] virtual std::vector<Wait> waits() const { return {}; }
  /// How far its own work has come, for people: "in layer h.5"; empty: nothing is known beside its name.
  [[nodiscard]] virtual std::string details() const { return {}; }
  /// Ranks that it exchanges messages with, whoever begins; of two ranks each names the other.
  [[nodiscard]] virtual std::vector<int> peers() const { return {}; }

  /// What it holds of the training's state, wherever that lives: all that has to be kept of the part.
  [[nodiscard]] virtual std::vector<StateArray> state() const { return {}; }
  /// Copies elements [begin, …) of one of these, as many as `values` has, from where they live or to there; `done`
  /// runs on the loop after this returned. Between steps, one call at a time. What others keep in copies is not
  /// touched.
  virtual void read_state(const StateArray& array, std::size_t begin, std::span<std::byte> values,
                          runtime::Handler done);
  virtual void write_state(const StateArray& array, std::size_t begin, std::span<const std::byte> values,
                           runtime::Handler done);

  /// The numbers among it: what decides the steps that follow the last one that was decided.
  [[nodiscard]] virtual std::vector<StateScalar> scalars() const { return {}; }
  /// Goes on from there, before anything begins. `all` has those of every part; what a part does not find there stays
  /// as it is.
  virtual void restore_scalars([[maybe_unused]] std::span<const StateScalar> all) {}
};

/// The number of that name; none: it is not there, or of the other kind.
template <typename T>
[[nodiscard]] std::optional<T> find_scalar(std::span<const StateScalar> all, std::string_view name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const StateScalar& each) { return each.name == name; });
  if (found == all.end() || !std::holds_alternative<T>(found->value)) return std::nullopt;
  return std::get<T>(found->value);
}

inline void Actor::read_state(const StateArray& array, std::size_t, std::span<std::byte>, runtime::Handler) {
  fail(ErrorCode::internal, "{} holds no state, and '{}' is read", name(), array.name);
}
inline void Actor::write_state(const StateArray& array, std::size_t, std::span<const std::byte>, runtime::Handler) {
  fail(ErrorCode::internal, "{} holds no state, and '{}' is written", name(), array.name);
}

}  // namespace ranvier::actors
