// An operation and its kernels have one signature, which the operation's header says once:
//
//   void gelu_forward(StreamView stream, …);           // checks its arguments, and calls one of
//   OnCpu<decltype(gelu_forward)> gelu_forward_cpu;    // the same on a ComputePool& in place of the stream
//   OnCuda<decltype(gelu_forward)> gelu_forward_cuda;  // there in builds with CUDA
//
// A CPU's kernel blocks until the result is written; a GPU's returns at once. Loop thread only, but for a CPU's, which
// runs where the pool does.
#pragma once

#include "runtime/stream.hpp"

namespace ranvier::models {

template <typename Operation>
struct Backend;
template <typename... Arguments>
struct Backend<void(runtime::StreamView, Arguments...)> {
  using Cpu = void(runtime::ComputePool&, Arguments...);
  using Cuda = void(runtime::StreamView, Arguments...);
};

template <typename Operation>
using OnCpu = typename Backend<Operation>::Cpu;
template <typename Operation>
using OnCuda = typename Backend<Operation>::Cuda;

}  // namespace ranvier::models
