// Runs the transfers of a test.
#pragma once

#include "runtime/loop/asio_loop.hpp"
#include "tests/test.hpp"

namespace ranvier::offload::tests {

/// Runs `begin`, which must call its argument once for each of `count` completions, and the loop until then.
inline void run_transfers(runtime::AsioLoop& loop, std::size_t count,
                          const std::function<void(runtime::Handler done)>& begin) {
  std::size_t left = count;
  begin([&] {
    if (--left == 0) loop.stop();
  });
  CHECK(left == count);  // no handler is called before the loop runs
  if (count != 0) loop.run();
}

}  // namespace ranvier::offload::tests
