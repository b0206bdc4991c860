// GPU kernel for the AdamW step of adamw.hpp; arguments are checked by the caller. Loop thread only.
#pragma once

#include "runtime/kernels/adamw.hpp"
#include "runtime/kernels/adamw_cpu.hpp"

#include <span>

namespace ranvier::runtime {

void adamw_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                std::span<const DecaySegment> segments, const AdamWOptions& options,
                const cpu::AdamWConstants& constants);

}  // namespace ranvier::runtime
