// Matrix registers of Intel processors (AMX): eight registers with 16 rows of 64 bytes. An instruction multiplies 16 ×
// 32 by 32 × 16 bf16 numbers and adds to 16 × 16 floats, about 8 times as many as with vectors. A row of the right
// operand holds pairs of neighbours along the sum.
#pragma once

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define RANVIER_AMX 1
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace ranvier::models::amx {

/// Whether the operating system lets this process use AMX. Queries it once.
[[nodiscard]] bool available();

inline constexpr std::size_t rows = 16;   ///< rows of a register
inline constexpr std::size_t pairs = 16;  ///< pairs of bf16, or floats, per row

/// Configures the thread's registers while it multiplies. oneDNN reconfigures them whenever it needs them.
class Registers {
 public:
  Registers() {
    struct alignas(64) Layout {
      std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Layout layout;
    _tile_loadconfig(&layout);
  }
  ~Registers() { _tile_release(); }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
};

/// Orders register loads and stores with other memory accesses. The compiler does not know that these instructions
/// access memory.
inline void fence() { asm volatile("" ::: "memory"); }

}  // namespace ranvier::models::amx
#endif
