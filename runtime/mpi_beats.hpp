// What ranks tell each other while none of them has a loop yet: how far each has come, and what it does. All tell rank
// 0, and rank 0 tells all, so that whoever waits in a collective knows for whom. Nothing here waits. Only the loop's
// thread, which calls MPI.
#pragma once

#include "runtime/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::runtime {

class MpiBeats {
 public:
  struct Heard {
    std::uint64_t place = 0;  ///< collectives that it has come to
    std::string does;         ///< "loads its weights, for 3.0 s"; empty: it has said nothing yet
    Duration silent{};        ///< of the time that was passed since
  };

  /// Collective: all ranks make it.
  MpiBeats(int rank, int ranks);
  ~MpiBeats();
  MpiBeats(const MpiBeats&) = delete;
  MpiBeats& operator=(const MpiBeats&) = delete;

  /// To rank 0, or from it to all. Whoever has not taken the last yet gets none.
  void say(std::uint64_t place, const std::string& does);
  /// Takes what has come.
  void hear();
  /// So much time has gone by without any from whom hear() took none.
  void pass(Duration time);
  /// Everybody was heard just now.
  void forgive();

  /// By rank; only those that this one hears from have ever said anything.
  [[nodiscard]] const std::vector<Heard>& heard() const noexcept { return heard_; }
  /// Whom this rank hears from: of rank 0 all others, else rank 0.
  [[nodiscard]] std::vector<int> sources() const;

 private:
  struct State;
  int rank_, ranks_;
  std::vector<Heard> heard_;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
