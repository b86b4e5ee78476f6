// SPDX-License-Identifier: Apache-2.0
// `pagewise explain`: asks a running server why a request would miss its cache, and says it in
// words.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text_file.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "cli/terminal_text.h"
#include "server/explain/cause.h"
#include "server/http_client.h"

namespace pagewise::cli {
namespace {

struct ExplainFlags {
  std::string request;
  std::string url = "http://127.0.0.1:8080";
  std::string key;
  bool json = false;
};

/// The engine answers between two steps, and a step is short.
constexpr std::chrono::seconds kTimeLimit{60};

Result<std::string> read_request(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    Result<std::string> read = read_text_file(path, "a file with one request");
    if (!read) return Error{ErrorCode::kInvalidArgument, read.error().message};
    text = std::move(*read);
  }
  const auto parsed = parse_json(text);
  if (!parsed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, parsed.error().message)};
  }
  if (!parsed->is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: not a JSON object", path)};
  }
  return text;
}

// ---- For a person -----------------------------------------------------------------------------

std::string grouped(int64_t number) {
  std::string out = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(out.size()) - 3; at > 0; at -= 3)
    out.insert(static_cast<std::size_t>(at), ",");
  return out;
}

int64_t integer(const json::value& value) {
  return value.is_number() ? value.to_number<int64_t>() : 0;
}
std::string_view text(const json::value& value) {
  return value.is_string() ? std::string_view(value.get_string()) : std::string_view();
}

/// One line of text with what is no visible character spelled out: blanks that look like others or
/// like nothing, too, because they are what a miss may be about.
std::string visible(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kBlanks[] = {
      {"\xC2\xA0", "\\u00a0"}, {"\xEF\xBB\xBF", "\\ufeff"}, {"\xE2\x80\x8B", "\\u200b"}};
  std::string out = one_line(text, text.size());
  for (const auto& [blank, spelled] : kBlanks) {
    for (std::size_t at = 0; (at = out.find(blank, at)) != std::string::npos;)
      out.replace(at, blank.size(), spelled);
  }
  return out;
}

/// At most `bytes` of it, cut between characters; from its end when `tail`.
std::string clipped(std::string_view text, std::size_t bytes, bool tail) {
  const auto inside = [&](std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  if (text.size() <= bytes) return std::string(text);
  std::size_t cut = tail ? text.size() - bytes : bytes;
  while (cut > 0 && inside(cut)) --cut;
  return std::string(tail ? text.substr(cut) : text.substr(0, cut));
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string rendered(const json::object& answer) {
  std::string out;
  const auto line = [&](std::string_view name, std::string_view words) {
    out += fmt::format("{:<9} {}\n", name, words);
  };
  const int64_t cached = integer(answer.at("cached_tokens"));
  const int64_t prompt = integer(answer.at("prompt_tokens"));
  const int64_t blocks = integer(answer.at("blocks"));
  line("prompt", fmt::format("{} tokens", grouped(prompt)));
  std::string state = fmt::format(
      "{} tokens ({:.0f} %) in {} {}", grouped(cached),
      100.0 * static_cast<double>(cached) / static_cast<double>(std::max<int64_t>(prompt, 1)),
      grouped(blocks), blocks == 1 ? "block" : "blocks");
  if (const json::object* lease = answer.at("lease").if_object()) {
    state += fmt::format("; a {} lease on {} tokens ends in {:.0f} s", text(lease->at("ttl")),
                         grouped(integer(lease->at("tokens"))),
                         lease->at("expires_in_s").to_number<double>());
  }
  line("cached", state);
  if (const json::object* nearest = answer.at("nearest").if_object()) {
    std::string words =
        nearest->at("id").is_string()
            ? fmt::format("{} ({}), {:.0f} s ago", text(nearest->at("id")),
                          text(nearest->at("model")), nearest->at("age_s").to_number<double>())
            : std::string("a cached prompt");
    line("nearest", fmt::format("{}: {} tokens, of which the first {} are these", words,
                                grouped(integer(nearest->at("prompt_tokens"))),
                                grouped(integer(nearest->at("shared_tokens")))));
  }
  if (const json::object* place = answer.at("divergence").if_object()) {
    line("differs", fmt::format("from token {} on, in {}", grouped(integer(place->at("token"))),
                                text(place->at("path"))));
    const std::string context = clipped(visible(text(place->at("context"))), 36, true);
    const std::string before = clipped(visible(text(place->at("cached_text"))), 44, false);
    const std::string now = clipped(visible(text(place->at("request_text"))), 44, false);
    line("  cached", context + before);
    line("  asked", context + now);
    const auto parted = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
    const std::string shared(before.begin(), parted.first);
    line("", std::string(characters(context) + characters(shared), ' ') + "^");
  }
  const json::object& gain = answer.at("gain").as_object();
  const std::string_view cause = text(answer.at("cause"));
  line("cause", cause.empty() ? "none" : cause);
  line("", one_line(text(answer.at("note")), 1000));
  if (const int64_t tokens = integer(gain.at("tokens")); tokens > 0) {
    std::string worth = fmt::format("{} tokens", grouped(tokens));
    if (gain.at("ms").is_number()) {
      worth += fmt::format(", about {} ms of prefill",
                           grouped(static_cast<int64_t>(gain.at("ms").to_number<double>() + 0.5)));
    }
    line("worth", worth + ", with every such request");
  }
  return out;
}

/// What the server says when it refuses: the message of either API's error body.
std::string refusal(const server::HttpAnswer& answer) {
  std::string message = answer.body.substr(0, 200);
  if (const auto parsed = parse_json(answer.body); parsed && parsed->is_object()) {
    const json::value* error = parsed->get_object().if_contains("error");
    const json::object* object = error == nullptr ? nullptr : error->if_object();
    const json::value* text = object == nullptr ? nullptr : object->if_contains("message");
    if (text != nullptr && text->is_string()) message = std::string_view(text->get_string());
  }
  return fmt::format("the server answered {}: {}", answer.status, one_line(message, 1000));
}

Status explain(const ExplainFlags& flags) {
  PW_ASSIGN_OR_RETURN(const server::ServerUrl url, server::parse_server_url(flags.url));
  PW_ASSIGN_OR_RETURN(const std::string request, read_request(flags.request));
  std::vector<server::HttpHeader> headers;
  if (!flags.key.empty()) headers.push_back({"authorization", "Bearer " + flags.key});
  PW_ASSIGN_OR_RETURN(const server::HttpAnswer answer,
                      server::http_post(url, "/v1/cache/explain", headers, request, kTimeLimit));
  if (answer.status != 200) return {ErrorCode::kIo, refusal(answer)};
  const auto parsed = parse_json(answer.body);
  const json::object* object = parsed ? parsed->if_object() : nullptr;
  if (object == nullptr || !object->contains("cached_tokens") || !object->contains("gain")) {
    return {
        ErrorCode::kIo,
        fmt::format("{}: what came back is no explanation; is this a Pagewise server?", flags.url)};
  }
  const std::string out = flags.json ? answer.body + "\n" : rendered(*object);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return Status::ok();
}

}  // namespace

void add_explain_command(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "Say why a request would miss a running server's prompt cache");
  command
      ->add_option("REQUEST", flags->request,
                   "The body of a messages or chat request, as JSON; '-': standard input")
      ->required();
  command->add_option("--url", flags->url, "Address of the server")->capture_default_str();
  command->add_option("--key", flags->key, "API key, when the server asks for one")
      ->envname("PAGEWISE_API_KEY");
  command->add_flag("--json", flags->json, "The server's answer as it came");
  command->callback([flags, &exit_status] {
    const Status status = explain(*flags);
    finish("explain", status, exit_status);
    if (status.code() == ErrorCode::kInvalidArgument) exit_status = 2;
  });
}

}  // namespace pagewise::cli
