// cuBLASLt's functions, loaded at the first matrix multiplication, and its descriptors as classes. Only
// library_matmul_cuda.cpp includes this.
#pragma once

#include <cublasLt.h>

namespace ranvier::models::cuda {

/// Address of a function of the library. Throws ErrorCode::device if it cannot be loaded.
[[nodiscard]] void* find_cublas_lt(const char* name);

/// Throws ErrorCode::device, or ErrorCode::memory if memory is exhausted, with the call and the library's message.
void check(cublasStatus_t status, const char* call);

template <typename Function>
struct CublasLtFunction {
  const char* name;
  Function* function;

  template <typename... Arguments>
  auto operator()(Arguments... arguments) const {
    return function(arguments...);
  }
  /// Throws like cuda::check().
  template <typename... Arguments>
  void checked(Arguments... arguments) const {
    check(function(arguments...), name);
  }
};

/// Functions of the library, loaded when needed, so that other jobs do not load it.
struct CublasLt {
#define RANVIER_CUBLAS_LT_FUNCTION(name) \
  CublasLtFunction<decltype(::name)> name { #name, reinterpret_cast<decltype(&::name)>(find_cublas_lt(#name)) }
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulPreferenceCreate);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulPreferenceDestroy);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulDescCreate);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulDescDestroy);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulDescSetAttribute);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatrixLayoutCreate);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatrixLayoutDestroy);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtGetStatusString);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtCreate);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmul);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtMatmulAlgoCheck);
  RANVIER_CUBLAS_LT_FUNCTION(cublasLtGetVersion);
#undef RANVIER_CUBLAS_LT_FUNCTION
};

/// Throws ErrorCode::device if the library cannot be loaded.
[[nodiscard]] const CublasLt& cublas_lt();

/// A descriptor of the library: the functions that create and destroy it, and set an attribute.
template <typename Handle, auto create, auto destroy, auto set_attribute = nullptr>
class Descriptor {
 public:
  template <typename... Arguments>
  explicit Descriptor(Arguments... arguments) {
    (cublas_lt().*create).checked(&handle_, arguments...);
  }
  ~Descriptor() { (cublas_lt().*destroy)(handle_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] Handle get() const { return handle_; }

  template <typename Attribute, typename Value>
  void set(Attribute attribute, const Value& value) {
    (cublas_lt().*set_attribute).checked(handle_, attribute, &value, sizeof(value));
  }

 private:
  Handle handle_ = nullptr;
};

using Layout = Descriptor<cublasLtMatrixLayout_t, &CublasLt::cublasLtMatrixLayoutCreate,
                          &CublasLt::cublasLtMatrixLayoutDestroy>;
using Description = Descriptor<cublasLtMatmulDesc_t, &CublasLt::cublasLtMatmulDescCreate,
                               &CublasLt::cublasLtMatmulDescDestroy, &CublasLt::cublasLtMatmulDescSetAttribute>;
using Preference =
    Descriptor<cublasLtMatmulPreference_t, &CublasLt::cublasLtMatmulPreferenceCreate,
               &CublasLt::cublasLtMatmulPreferenceDestroy, &CublasLt::cublasLtMatmulPreferenceSetAttribute>;

}  // namespace ranvier::models::cuda
