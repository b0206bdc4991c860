// The kernel of adamw.hpp on a GPU; its arguments have been checked.
#pragma once

#include "runtime/kernels/adamw.hpp"
#include "runtime/kernels/adamw_cpu.hpp"

#include <span>

namespace ranvier::runtime {

void adamw_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                std::span<const DecaySegment> segments, const cpu::AdamWConstants& constants);

}  // namespace ranvier::runtime
