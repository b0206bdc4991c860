// Collects one block of bytes from every rank on rank 0: traces and totals at the end of a run. Loop thread.
#pragma once

#include "runtime/transport/transport.hpp"

#include <functional>
#include <string>
#include <vector>

namespace ranvier::actors {

/// `done` gets the blocks in rank order on rank 0, and nothing on other ranks, when this rank has finished.
/// All ranks call it the same number of times in the same order; the transport must outlive it.
void gather(runtime::Transport& transport, std::string mine, std::function<void(std::vector<std::string>)> done);

}  // namespace ranvier::actors
