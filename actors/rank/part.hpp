// What every part of a rank answers, whatever it does: so that the watchdog, reports of a rank that hangs and
// checkpoints follow from the parts, and a new part is its own files and one line in Rank. Loop thread only.
//
// Work of the part's own, on streams, in files or on threads of the host, it begins by EventLoop::after_work() and ends(),
// under its name: nobody has to ask for that.
#pragma once

#include "runtime/own_work.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

/// Something that other ranks have to do before a part can go on.
struct Wait {
  std::string what;              ///< "the gather of the parameters of h.3 for a backward pass"
  std::optional<int> rank;       ///< whose turn it is, where it is one rank's
  runtime::Duration since{};     ///< loop time
};

class Part {
 public:
  virtual ~Part() = default;

  /// For people, and WorkName::part of its own work: "gradients".
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// What it waits for from other ranks now, the oldest first.
  [[nodiscard]] virtual std::vector<Wait> waits() const { return {}; }
  /// How far its own work has come, for people: "in layer h.5"; empty: nothing is known beside its name.
  [[nodiscard]] virtual std::string details() const { return {}; }
  /// Ranks that it exchanges messages with, whoever begins; of two ranks each names the other.
  [[nodiscard]] virtual std::vector<int> peers() const { return {}; }
};

}  // namespace ranvier::actors
