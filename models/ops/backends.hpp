// An operation and its kernels share one signature, written once in the operation's header:
//
//   void gelu_forward(StreamView stream, …);           // checks arguments, then calls one of
//   OnCpu<decltype(gelu_forward)> gelu_forward_cpu;    // same, with a ComputePool& instead of the stream
//   OnCuda<decltype(gelu_forward)> gelu_forward_cuda;  // in builds with CUDA
//
// CPU kernels run on the thread that executes the stream's work, and block until the result is written. GPU kernels are
// called on the loop thread and return at once.
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
