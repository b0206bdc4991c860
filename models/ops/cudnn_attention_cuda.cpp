#include "models/ops/cudnn_attention_cuda.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <unordered_map>
#include <utility>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // used by the frontend to find all functions of cuDNN
}

namespace ranvier::models::cuda {
namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Tensor_attributes;
using runtime::DType;

enum Array : std::int64_t { q = 1, k, v, out, stats, d_out, d_q, d_k, d_v };  // ids of tensors in the graph

std::string open_library() {
  const std::string name = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  void* found = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) found = dlopen(RANVIER_CUDNN, RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) {
    const char* const reason = dlerror();
    return fmt::format(
        "neither {} nor {} can be opened: {}; install cuDNN {} or put its folder into LD_LIBRARY_PATH", name,
        RANVIER_CUDNN, reason != nullptr ? reason : "unknown", CUDNN_MAJOR);
  }
  frontend::cudnn_dlhandle = found;
  return {};
}

void check(frontend::error_t error, const char* call) {
  if (error.is_bad()) fail(ErrorCode::device, "cuDNN's {} failed: {}", call, error.get_message());
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(status == CUDNN_STATUS_ALLOC_FAILED ? ErrorCode::memory : ErrorCode::device, "{} failed: {} (status {})",
       call, frontend::detail::get_error_string(status), static_cast<int>(status));
}

/// Handles by the GPU's number. Never destroyed: the driver may already be unloaded at exit.
std::map<int, cudnnHandle_t>& handles() {
  static auto& all = *new std::map<int, cudnnHandle_t>;
  return all;
}

cudnnHandle_t handle_of(runtime::StreamView stream) {
  return handles().at(runtime::cuda::properties(stream.device()).ordinal);
}

/// Architecture, such as 90 for 9.0. The frontend would use its own CUDA runtime to query it.
int architecture_of(runtime::StreamView stream) {
  const int ordinal = runtime::cuda::properties(stream.device()).ordinal;
  int major = 0, minor = 0;
  runtime::cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
                       "cudaDeviceGetAttribute");
  runtime::cuda::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
                       "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

class Planned final : public CudnnAttention {
 public:
  Planned(const AttentionShape& shape, const CudnnRows& rows, DType dtype, AttentionPass pass, int architecture)
      : B_(shape.samples),
        T_(shape.positions),
        H_(shape.heads),
        K_(shape.stored_key_heads()),
        D_(shape.channels),
        pass_(pass),
        wide_row_((rows.heads + 2 * std::int64_t{rows.key_heads}) * D_),
        narrow_row_(rows.heads * D_) {
    graph_.set_sm_version(architecture)
        .set_io_data_type(dtype == DType::bf16 ? frontend::DataType_t::BFLOAT16 : frontend::DataType_t::HALF)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    const auto queries = graph_.tensor(heads("q", q, H_, wide_row_)),
               keys = graph_.tensor(heads("k", k, K_, wide_row_)),
               values = graph_.tensor(heads("v", v, K_, wide_row_));
    if (pass == AttentionPass::forward) {
      auto attributes = frontend::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
      set_mask(attributes, shape);
      const auto results = graph_.sdpa(queries, keys, values, attributes);
      write(results[0], out, H_, narrow_row_);
      results[1]
          ->set_output(true)
          .set_uid(stats)
          .set_dim({B_, H_, T_, 1})
          .set_stride({H_ * T_, T_, 1, 1})
          .set_data_type(frontend::DataType_t::FLOAT);
      return;
    }
    auto attributes = frontend::graph::SDPA_backward_attributes()
                          .set_name("attention backward")
                          .set_deterministic_algorithm(pass == AttentionPass::backward);
    set_mask(attributes, shape);
    const auto results =
        graph_.sdpa_backward(queries, keys, values, graph_.tensor(heads("out", out, H_, narrow_row_)),
                             graph_.tensor(heads("d_out", d_out, H_, narrow_row_)),
                             graph_.tensor(logsumexp("stats", stats)), attributes);
    write(results[0], d_q, H_, wide_row_);
    write(results[1], d_k, K_, wide_row_);
    write(results[2], d_v, K_, wide_row_);
  }

  /// Builds the plan. Returns an empty string if it can be executed, otherwise the reason.
  std::string build(cudnnHandle_t handle, std::size_t workspace_bytes) {
    const auto most = static_cast<std::int64_t>(workspace_bytes);
    for (const auto& step : std::initializer_list<std::function<frontend::error_t()>>{
             [&] { return graph_.validate(); }, [&] { return graph_.build_operation_graph(handle); },
             [&] {
               return graph_.create_execution_plans({frontend::HeurMode_t::A, frontend::HeurMode_t::FALLBACK});
             },
             [&] { return graph_.deselect_workspace_greater_than(most).check_support(); },
             [&] { return graph_.build_plans(frontend::BuildPlanPolicy_t::HEURISTICS_CHOICE); }}) {
      if (frontend::error_t error = step(); error.is_bad()) return error.get_message();
    }
    const std::int64_t needed = graph_.get_workspace_size();
    return needed <= most ? std::string() : fmt::format("it needs {} bytes of workspace", needed);
  }

  void run(runtime::StreamView stream, const CudnnAttentionArrays& arrays) override {
    const cudnnHandle_t handle = handle_of(stream);
    std::unordered_map<std::int64_t, void*> places{{q, const_cast<void*>(arrays.q)},
                                                   {k, const_cast<void*>(arrays.k)},
                                                   {v, const_cast<void*>(arrays.v)},
                                                   {out, arrays.out},
                                                   {stats, arrays.logsumexp}};
    if (pass_ != AttentionPass::forward) {
      places[d_out] = const_cast<void*>(arrays.d_out);
      places[d_q] = arrays.d_q;
      places[d_k] = arrays.d_k;
      places[d_v] = arrays.d_v;
    }
    try {
      check(graph_.execute(handle, places, arrays.workspace), "attention");
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // from the frontend, if it misses a library
      fail(ErrorCode::device, "cuDNN's attention failed: {}", error.what());
    }
  }

 private:
  /// cuDNN's left bound counts the position itself, as a window does.
  template <typename Attributes>
  void set_mask(Attributes& attributes, const AttentionShape& shape) const {
    attributes.set_attn_scale(1.0f / std::sqrt(static_cast<float>(D_)))
        .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT);
    if (shape.causal) attributes.set_diagonal_band_right_bound(0);
    if (shape.window > 0) attributes.set_diagonal_band_left_bound(shape.window);
  }
  /// [B, `count`, T, D] within rows of `row` channels.
  [[nodiscard]] Tensor_attributes heads(const char* name, Array uid, std::int64_t count, std::int64_t row) const {
    return Tensor_attributes()
        .set_name(name)
        .set_uid(uid)
        .set_dim({B_, count, T_, D_})
        .set_stride({T_ * row, D_, row, 1});
  }
  [[nodiscard]] Tensor_attributes logsumexp(const char* name, Array uid) const {
    return Tensor_attributes()
        .set_name(name)
        .set_uid(uid)
        .set_dim({B_, H_, T_, 1})
        .set_stride({H_ * T_, T_, 1, 1})
        .set_data_type(frontend::DataType_t::FLOAT);
  }
  void write(const std::shared_ptr<Tensor_attributes>& result, Array uid, std::int64_t count,
             std::int64_t row) const {
    result->set_output(true).set_uid(uid).set_dim({B_, count, T_, D_}).set_stride({T_ * row, D_, row, 1});
  }

  frontend::graph::Graph graph_;
  std::int64_t B_, T_, H_, K_, D_;
  AttentionPass pass_;
  std::int64_t wide_row_, narrow_row_;  ///< channels per position of qkv, and of out
};

}  // namespace

bool built_with_cudnn() { return true; }

std::string cudnn_obstacle() {
  static const std::string obstacle = open_library();
  return obstacle;
}

std::size_t cudnn_version() { return cudnn_obstacle().empty() ? frontend::detail::get_backend_version() : 0; }

void bind_cudnn(runtime::StreamView stream) {
  const cudaStream_t queue = runtime::cuda::native(stream);
  cudnnHandle_t& handle = handles()[runtime::cuda::properties(stream.device()).ordinal];
  if (handle == nullptr) {
    if (const std::string obstacle = cudnn_obstacle(); !obstacle.empty()) fail(ErrorCode::device, "{}", obstacle);
    check(frontend::detail::create_handle(&handle), "cudnnCreate");
  }
  check(frontend::detail::set_stream(handle, queue), "cudnnSetStream");
}

void unbind_cudnn(runtime::StreamView stream) noexcept {
  const auto known = handles().find(runtime::cuda::properties(stream.device()).ordinal);
  if (known != handles().end() && known->second != nullptr)
    (void)frontend::detail::set_stream(known->second, nullptr);
}

CudnnPlan plan_cudnn_attention(runtime::StreamView stream, const AttentionShape& shape, const CudnnRows& rows,
                               DType dtype, AttentionPass pass, std::size_t workspace_bytes) {
  const cudnnHandle_t handle = handle_of(stream);
  try {
    auto planned = std::make_unique<Planned>(shape, rows, dtype, pass, architecture_of(stream));
    if (std::string obstacle = planned->build(handle, workspace_bytes); !obstacle.empty())
      return {.attention = nullptr, .obstacle = std::move(obstacle)};
    return {.attention = std::move(planned), .obstacle = {}};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // from the frontend, if it misses a library
    return {.attention = nullptr, .obstacle = error.what()};
  }
}

}  // namespace ranvier::models::cuda
