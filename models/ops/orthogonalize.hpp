// Approximate orthogonalization of a matrix by Newton-Schulz iterations: the core of Muon (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon). With X = M / max(‖M‖_F, 1e-7), five times:
//
//   A = X·Xᵀ,  X = (3.4445·I - 4.7750·A + 2.0315·A²)·X
//
// Singular vectors stay; singular values of X from 0.002 to 1 become 0.68 to 1.21, smaller ones grow up to 485 times. A
// matrix with more rows than columns uses Xᵀ·X instead, from the right. Letters: R rows, C columns, S = min(R, C).
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

/// Factor of an orthogonalized matrix, so that its entries' root mean square is about 0.2, as of AdamW's updates:
/// 0.2·√max(R, C) (Moonlight, Liu et al. 2025, §2.2).
[[nodiscard]] float muon_scale(std::size_t rows, std::size_t columns);

/// Launches of orthogonalize(): three for the norm, and four per iteration.
inline constexpr std::size_t orthogonalize_launches = 3 + 5 * 4;

/// Bytes of orthogonalize()'s workspace: R·C + 2·S² elements of `dtype`, and one float per 512 elements of a row.
[[nodiscard]] std::size_t orthogonalize_workspace(std::size_t rows, std::size_t columns, runtime::DType dtype);

/// matrix[R, C] = scale · its orthogonalization, in place. Rows start `stride` >= C elements apart; elements between
/// them are not touched. `workspace` is 64-byte aligned device memory.
///
/// `dtype` is f32, or bf16 as in torch.optim.Muon. The norm, sums and the result are in fp32; X, A, A² and the
/// polynomial, the last one times scale, are rounded to `dtype`. Entries differ from those computed in double by at
/// most 1e-5·scale in f32. In bf16, they differ by 1 to 4 % (root mean square), as torch's do: by at most 0.025·scale
/// if S >= 16, but 0.05·scale for 3 × 5 (tests/models/orthogonalize_test.cpp).
///
/// On the host, bits do not depend on the number of threads. A zero matrix stays zero; if an element or the sum of
/// squares is not finite, all elements become NaN. Throws ErrorCode::internal if the matrix is empty, the stride too
/// small, or the type another one. Loop thread only.
void orthogonalize(runtime::StreamView stream, float* matrix, std::size_t rows, std::size_t columns,
                   std::size_t stride, float scale, runtime::DType dtype, std::byte* workspace);

/// The polynomial's coefficients: 3.4445·I - 4.7750·A + 2.0315·A².
inline constexpr float newton_schulz_identity = 3.4445f, newton_schulz_once = -4.7750f,
                       newton_schulz_twice = 2.0315f;

/// x[R, C] of `dtype`, without gaps, = matrix / max(√*squares, 1e-7); NaN if *squares is not finite.
void divide_by_norm(runtime::StreamView stream, void* x, runtime::DType dtype, const float* matrix,
                    std::size_t rows, std::size_t columns, std::size_t stride, const double* squares);

/// squared[S, S] = scale · the polynomial of a[S, S], both of `dtype`; before the call, squared = a². Computed in float
/// and rounded once.
void newton_schulz_factor(runtime::StreamView stream, void* squared, const void* a, runtime::DType dtype,
                          std::size_t size, float scale);

// GPU kernels.
decltype(divide_by_norm) divide_by_norm_cuda;
decltype(newton_schulz_factor) newton_schulz_factor_cuda;

}  // namespace ranvier::models
