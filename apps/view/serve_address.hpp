// Where --serve listens, and who may ask there. Any thread.
#pragma once

#include "apps/view/live_run.hpp"
#include "apps/view/page_server.hpp"
#include "runtime/options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::apps {

/// "8080", "0.0.0.0:8080", "[::1]:8080".
struct ServeAddress {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any that is free

  /// Whether only this machine reaches it.
  [[nodiscard]] bool is_local() const;
};
/// Empty if it is none.
[[nodiscard]] std::optional<ServeAddress> parse_serve_address(std::string_view text);

/// Of --serve; an empty field: nothing is served.
[[nodiscard]] runtime::OptionBinding serve_binding(std::string& field);

/// 128 random bits in hexadecimal.
[[nodiscard]] std::string random_token();

/// Answers a request about a run: /, /about, /status, /series, /ranks, /metrics, and /phase, which waits for a
/// change. `token`: what a request has to have, as `?token=` or as `Authorization: Bearer`; empty: only requests to
/// this machine's own names for itself are answered, so that no page of another site reads them through a browser.
[[nodiscard]] PageResponse answer_about(const LiveRun& run, std::string_view token, const PageRequest& request);

}  // namespace ranvier::apps
