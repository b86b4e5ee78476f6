// SPDX-License-Identifier: Apache-2.0
#include "server/respond.h"

#include <utility>

#include "server/anthropic/respond.h"
#include "server/openai/respond.h"

namespace pagewise::server {

void append_event(std::string& out, std::string_view name, const json::value& data) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  out += "data: ";
  out += json::serialize(data);
  out += "\n\n";
}

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context) {
  return context.format == Format::kMessages ? anthropic::make_stream_writer(std::move(context))
                                             : openai::make_stream_writer(std::move(context));
}

std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context) {
  return context.format == Format::kMessages ? anthropic::make_whole_writer(std::move(context))
                                             : openai::make_whole_writer(std::move(context));
}

}  // namespace pagewise::server
