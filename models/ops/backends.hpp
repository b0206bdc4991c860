// The signature of an operation is written once, in its header; the declarations of its kernels follow from it:
//
//   void gelu_forward(StreamView stream, …);           // checks arguments, then calls one of the two kernels
//   OnCpu<decltype(gelu_forward)> gelu_forward_cpu;    // declares a function with a ComputePool& for the stream
//   OnCuda<decltype(gelu_forward)> gelu_forward_cuda;  // declares a function; only in builds with CUDA
//
// Operations and GPU kernels are called on the loop thread; GPU kernels return at once. CPU kernels run on the thread
// that executes the stream's work, and block until the result is written.
#pragma once

#include "runtime/device/stream.hpp"

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
