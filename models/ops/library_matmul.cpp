#include "models/ops/library_matmul.hpp"

#include "models/ops/scratch.hpp"
#include "runtime/base/error.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
#include <omp.h>
#endif

namespace ranvier::models {
namespace {

using runtime::DType;

dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(std::size_t rows, std::size_t columns, DType dtype, std::size_t row_stride,
                          std::size_t column_stride) {
  using Dim = dnnl::memory::dim;
  return {{static_cast<Dim>(rows), static_cast<Dim>(columns)},
          data_type(dtype),
          dnnl::memory::dims{static_cast<Dim>(row_stride), static_cast<Dim>(column_stride)}};
}

struct Descriptors {
  explicit Descriptors(const LibraryMatmul& p)
      : a(matrix(p.m, p.k, p.dtype, p.k, 1)),
        b(matrix(p.k, p.n, p.dtype, p.transpose_b ? 1 : p.n, p.transpose_b ? p.k : 1)),
        c(matrix(p.m, p.n, p.c_dtype, p.n, 1)) {
    if (p.has_bias) bias = matrix(1, p.n, p.dtype, p.n, 1);
  }

  dnnl::memory::desc a, b, c, bias;
};

dnnl::matmul::primitive_desc describe(const LibraryMatmul& p, const Descriptors& d, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops operations;
    operations.append_sum(1.0f);
    attributes.set_post_ops(operations);
  }
#if DNNL_VERSION_MAJOR >= 3
  if (p.has_bias) return {engine, d.a, d.b, d.bias, d.c, attributes};
  return {engine, d.a, d.b, d.c, attributes};
#else
  if (p.has_bias) return {dnnl::matmul::desc(d.a, d.b, d.bias, d.c), attributes, engine};
  return {dnnl::matmul::desc(d.a, d.b, d.c), attributes, engine};
#endif
}

/// A multiplication ready to run; only addresses are missing.
class Primitive {
 public:
  Primitive(const LibraryMatmul& product, const dnnl::engine& engine) {
    const Descriptors descriptors(product);
    const auto description = describe(product, descriptors, engine);
    matmul_ = dnnl::matmul(description);
    scratch_bytes_ = description.scratchpad_desc().get_size();
    const auto add = [&](int argument, const dnnl::memory::desc& desc) {
      return arguments_.emplace(argument, dnnl::memory(desc, engine, nullptr)).first->second;
    };
    a_ = add(DNNL_ARG_SRC, descriptors.a);
    b_ = add(DNNL_ARG_WEIGHTS, descriptors.b);
    c_ = add(DNNL_ARG_DST, descriptors.c);
    if (product.has_bias) bias_ = add(DNNL_ARG_BIAS, descriptors.bias);
    if (scratch_bytes_ != 0) scratch_ = add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  }

  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }

  void run(const dnnl::stream& stream, void* c, const void* a, const void* b, const void* bias, void* scratch) {
    a_.set_data_handle(const_cast<void*>(a));
    b_.set_data_handle(const_cast<void*>(b));
    c_.set_data_handle(c);
    if (bias_) bias_.set_data_handle(const_cast<void*>(bias));
    if (scratch_) scratch_.set_data_handle(scratch);
    matmul_.execute(stream, arguments_);
  }

 private:
  dnnl::matmul matmul_;
  dnnl::memory a_, b_, c_, bias_, scratch_;  // refer to the same handles as the arguments
  std::unordered_map<int, dnnl::memory> arguments_;
  std::size_t scratch_bytes_ = 0;
};

struct Hash {
  std::size_t operator()(const LibraryMatmul& p) const {
    std::size_t hash = (p.transpose_b ? 1 : 0) + (p.has_bias ? 2 : 0) + (p.accumulate ? 4 : 0) +
                       (static_cast<std::size_t>(p.dtype) << 3) + (static_cast<std::size_t>(p.c_dtype) << 6);
    for (const std::size_t part : {p.m, p.n, p.k}) hash = hash * 0x9E3779B97F4A7C15u + part;
    return hash;
  }
};

constexpr bool is_version_3 = DNNL_VERSION_MAJOR >= 3;

bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

/// Whether bf16 is multiplied with AMX.
bool in_matrix_registers(DType dtype) {
  static const bool has_them = has(dnnl::cpu_isa::avx512_core_amx);
  return dtype == DType::bf16 && has_them;
}

/// State of one thread.
class Library {
 public:
  Library() {
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
    omp_set_num_threads(1);  // for this thread: oneDNN must not start threads next to the compute pool
#endif
  }

  void run(const LibraryMatmul& product, void* c, const void* a, const void* b, const void* bias) {
    const std::size_t least = min_rows(product);
    if (product.m < least) return run_with_more_rows(product, least, c, a, b, bias);
    run_whole(product, c, a, b, bias);
  }

 private:
  /// Minimum number of rows for which oneDNN uses the same kernel, and thus the same order of sums, as for many.
  static std::size_t min_rows(const LibraryMatmul& product) {
    if constexpr (is_version_3) return 2;  // it treats one row as a column, and splits K into shorter pieces
    if (!in_matrix_registers(product.dtype)) return 1;
    return std::max<std::size_t>(2, 256 / product.n + 1);  // small multiplications use vectors
  }

  void run_whole(const LibraryMatmul& product, void* c, const void* a, const void* b, const void* bias) {
    auto& primitive = primitives_[product];
    if (!primitive) primitive = std::make_unique<Primitive>(product, engine_);
    primitive->run(stream_, c, a, b, bias, scratch_.get(primitive->scratch_bytes()));
    stream_.wait();
  }

  /// Computes these rows with the same bits as among `rows` rows, by adding rows of zeros.
  void run_with_more_rows(LibraryMatmul product, std::size_t rows, void* c, const void* a, const void* b,
                          const void* bias) {
    const std::size_t a_row = product.k * size_of(product.dtype), c_row = product.n * size_of(product.c_dtype);
    const std::size_t a_bytes = product.m * a_row, c_bytes = product.m * c_row;
    std::byte* more_a = more_a_.get(rows * a_row);
    std::byte* more_c = more_c_.get(rows * c_row);
    std::memcpy(more_a, a, a_bytes);
    std::memset(more_a + a_bytes, 0, rows * a_row - a_bytes);
    if (product.accumulate) {
      std::memcpy(more_c, c, c_bytes);
      std::memset(more_c + c_bytes, 0, rows * c_row - c_bytes);
    }
    product.m = rows;
    run_whole(product, more_c, more_a, b, bias);
    std::memcpy(c, more_c, c_bytes);
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<LibraryMatmul, std::unique_ptr<Primitive>, Hash> primitives_;
  Scratch scratch_, more_a_, more_c_;
};

}  // namespace

void library_matmul(const LibraryMatmul& product, void* c, const void* a, const void* b, const void* bias) {
  static thread_local Library library;
  try {
    library.run(product, c, a, b, bias);
  } catch (const dnnl::error& error) {
    fail(ErrorCode::device, "oneDNN refused a {} matrix product of M {}, N {}, K {}: {} (status {})",
         runtime::to_string(product.dtype), product.m, product.n, product.k, error.what(),
         static_cast<int>(error.status));
  }
}

LibraryRows library_rows(DType dtype) {
  // With AVX-512, several rows without gaps use kernels that split K depending on N and K only; older kernels depend on
  // M.
  if (!library_has_avx512()) return {.alike = false};
  if (!in_matrix_registers(dtype)) return {};
  if constexpr (is_version_3) return {.alike = false};  // depends on M
  // oneDNN 2.6 splits K if up to 256 rows of a, 384 columns of b and their sums exceed three quarters of the L2 cache,
  // which has 2 MiB on every processor with AMX.
  return {.longest_k = 640, .longest_k_by_64 = 832};
}

bool library_has_avx512() { return has(dnnl::cpu_isa::avx512_core); }

bool library_has_bf16() { return has(dnnl::cpu_isa::avx512_core_bf16); }

}  // namespace ranvier::models
