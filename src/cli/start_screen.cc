// SPDX-License-Identifier: Apache-2.0
#include "cli/start_screen.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/bytes.h"

namespace pagewise::cli {

std::string start_screen(const ServeFlags& flags, const model::ModelSpec& spec,
                         const kv::Geometry& geometry, const Pool& pool,
                         const model::CpuExecutor& executor, const server::ServedModel& served,
                         uint16_t port) {
  uint64_t blocks = 0, pool_bytes = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    blocks += pool.blocks[g];
    pool_bytes += pool.blocks[g] * geometry.block_stride(g);
  }
  std::string out;
  const auto add = [&out]<typename... A>(fmt::format_string<A...> format, A&&... arguments) {
    fmt::format_to(std::back_inserter(out), format, std::forward<A>(arguments)...);
  };
  const std::string url = fmt::format(
      "http://{}:{}",
      flags.host.find(':') == std::string::npos ? flags.host : fmt::format("[{}]", flags.host),
      port);
  add("Pagewise {}\n", PAGEWISE_VERSION);
  add("  model          {} ({}, {:.0f} M parameters)\n", served.name, spec.architecture,
      static_cast<double>(spec.parameters) / 1e6);
  add("  weights        {}, {} threads, {}\n", format_size(executor.weight_bytes()),
      executor.threads(), executor.isa());
  add("  KV per token   {} ({})\n", format_size(geometry.token_bytes()),
      kv_types_text(flags.compute));
  add("  pool           {} blocks of {} tokens, {}\n", blocks, geometry.block_tokens,
      format_size(pool_bytes));
  add("  context        {} tokens (the model's {})\n", pool.context, spec.context);
  add("  conversations  {} at once\n", fit_text(geometry, pool));
  if (!served.aliases.empty()) add("  aliases        {}\n", fmt::join(served.aliases, ", "));
  if (served.chat_template == nullptr) add("  no chat        {}\n", served.no_template_reason);
  add("  address        {}\n\n", url);
  const std::string key = flags.api_key_file.empty() ? "" : " -H 'authorization: Bearer KEY'";
  if (served.chat_template != nullptr) {
    add("Try: curl {}/v1/messages{} -d "
        "'{{\"model\":\"{}\",\"max_tokens\":64,\"messages\":[{{\"role\":\"user\",\"content\":"
        "\"Hello\"}}]}}'\n",
        url, key, served.name);
  } else {
    add("Try: curl {}/v1/completions{} -d '{{\"model\":\"{}\",\"prompt\":\"Hello\"}}'\n", url, key,
        served.name);
  }
  return out;
}

}  // namespace pagewise::cli
