#include "apps/train/live_page.hpp"

#include "actors/watch/reporter.hpp"
#include "apps/program/profile_search_path.hpp"
#include "apps/train/report.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <thread>

namespace ranvier::apps {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

std::string url_of(const ServeAddress& where, std::uint16_t port, const std::string& token) {
  std::string host = where.address;
  if (host == "0.0.0.0" || host == "::") {
    host = host_name();
  } else if (host.find(':') != std::string::npos) {
    host = '[' + host + ']';
  }
  return fmt::format("http://{}:{}/{}{}", host, port, token.empty() ? "" : "?token=", token);
}

}  // namespace

LivePage::LivePage(const std::string& serve) : LivePage(serve, parse_serve_address(serve).value()) {}

LivePage::LivePage(const std::string& serve, const ServeAddress& where)
    : token_(where.is_local() ? std::string() : random_token()),
      server_("--serve " + serve, {.address = where.address, .port = where.port},
              [this](const PageRequest& request) { return answer_about(run_, token_, request); }),
      url_(url_of(where, server_.port(), token_)) {}

void LivePage::end(bool stopped) {
  tell([&] { run_.end(stopped); }, 5s);
}

void LivePage::fail(const std::string& message) {
  tell([&] { run_.fail(message); }, 1s);  // other ranks wait for the error
}

void LivePage::tell(const std::function<void()>& what, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr auto quiet = 2s;  // pages ask again at once, a little later on busy machines
  // An open page has a pending request, except for a moment after each reply.
  const bool watched = server_.open_requests() > 0 || run_.ranks_wanted();
  what();
  if (!watched) return;
  const auto begin = Clock::now();
  for (auto busy = begin, now = begin; now - begin < patience && now - busy < quiet; now = Clock::now()) {
    if (server_.open_requests() > 0) busy = now;
    std::this_thread::sleep_for(10ms);
  }
}

LiveRun::About about_run(const TrainOptions& options, const Job& job, const JobPlan& plan) {
  const models::Architecture& architecture = job.architecture;
  LiveRun::About about{.model = fmt::format("{}: {} parameters", architecture.name,
                                            actors::format_count(static_cast<double>(architecture.parameters()))),
                       .item = job.item,
                       .steps = plan.trainer.steps,
                       .grid = plan.trainer.grid,
                       .options = resolved(options)};
  for (const actors::RankPlan& stage : plan.stages) {
    std::string layers;
    for (const models::LayerRange& slice : stage.layers)
      layers += (layers.empty() ? "" : ", ") + layer_names(architecture, slice);
    json::object planned;
    using runtime::MemorySpace;
    for (const MemorySpace space :
         {MemorySpace::device, MemorySpace::pinned, MemorySpace::host, MemorySpace::nvme}) {
      if (space != MemorySpace::device && stage.memory.bytes(space) == 0) continue;
      json::object kinds;
      for (int k = 0; k < runtime::memory_kinds; ++k) {
        const auto kind = static_cast<runtime::MemoryKind>(k);
        kinds[runtime::to_string(kind)] = stage.memory.bytes(space, kind);
      }
      planned[runtime::to_string(space)] = std::move(kinds);
    }
    about.stages.push_back(json::object{{"layers", std::move(layers)}, {"planned_bytes", std::move(planned)}});
  }
  return about;
}

}  // namespace ranvier::apps
