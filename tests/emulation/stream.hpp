// Streams of the emulated GPU: work is done when it is queued, unless the stream is being captured; then it waits in the
// graph. Work owns what it needs: arguments, not the caller's variables. Any thread, one at a time for each stream.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace ranvier::emulation {

/// What no stream may be asked for during a capture ends the program with a line on stderr.
void queue(cudaStream_t stream, std::function<void()> work);

/// Whether it was made and is not destroyed. Null is: the default stream.
[[nodiscard]] bool is_alive(cudaStream_t stream);

}  // namespace ranvier::emulation
