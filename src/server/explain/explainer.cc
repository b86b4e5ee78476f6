// SPDX-License-Identifier: Apache-2.0
#include "server/explain/explainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "server/tools/tool_checks.h"

namespace pagewise::server::explain {
namespace {

/// How many tokens of how a cached prompt goes on are asked for: enough for any answer.
constexpr uint32_t kBeyondTokens = 4096;

// What a miss is: so many computed tokens, and so much of the prompt. Less is the new message that
// every request brings.
constexpr uint32_t kMissTokens = 32;
constexpr uint32_t kMissShare = 8;  // one part in eight
/// Earlier prompts that a missing one is compared with on the way: the last ones.
constexpr std::size_t kComparedInPassing = 8;
constexpr std::size_t kComparedTokens = 65'536;

double milliseconds(TimeNs ns) { return static_cast<double>(ns) * 1e-6; }
double rounded(double value) { return std::round(value * 10) / 10; }

std::string note_for(const Explanation& explanation, const std::optional<Nearest>& nearest,
                     bool prefix_cache, bool use_cache, uint32_t cached, uint32_t prompt) {
  if (!prefix_cache) return "this server keeps no prefix cache (--no-prefix-cache)";
  if (!use_cache) return "the request asks for no caching: nothing is read or kept";
  if (!nearest) return "no earlier prompt of this namespace is known";
  if (explanation.cause == Cause::kModel && cached + 1 >= prompt)
    return "both names stand for this server's one model, so everything is read all the same; with "
           "a hosted API each model has its own cache";
  if (nearest->shared_tokens > cached + 1)
    return fmt::format(
        "the prompt agrees with an earlier one for {} tokens, but the cache has given up {} of "
        "them",
        nearest->shared_tokens, nearest->shared_tokens - cached);
  if (explanation.cause)
    return fmt::format("{}: {}", cause_words(*explanation.cause), cause_fix(*explanation.cause));
  if (!explanation.divergence) return "everything that is known of this prompt is read";
  return "what is new is what is asked: nothing to fix";
}

bool has_any(const json::object& object, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    const json::value* value = object.if_contains(name);
    return value != nullptr && !value->is_null();
  });
}

/// Blocks and tools that only one of the two APIs has.
std::optional<Format> format_of_messages(const json::array& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json::object* message = messages[i].if_object();
    if (message == nullptr) continue;
    const json::value* role = message->if_contains("role");
    if (role != nullptr && role->is_string()) {
      const auto name = std::string_view(role->get_string());
      if (name == "developer" || name == "tool" || name == "function") return Format::kChat;
      if (i == 0 && name == "system") return Format::kChat;
    }
    if (has_any(*message, {"tool_calls", "tool_call_id"})) return Format::kChat;
    const json::value* content = message->if_contains("content");
    const json::array* blocks = content == nullptr ? nullptr : content->if_array();
    if (blocks == nullptr) continue;
    for (const json::value& block : *blocks) {
      const json::object* object = block.if_object();
      const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
      if (type == nullptr || !type->is_string()) continue;
      const auto name = std::string_view(type->get_string());
      if (name == "image_url" || name == "input_audio" || name == "file" || name == "refusal")
        return Format::kChat;
      if (name != "text") return Format::kMessages;
    }
  }
  return std::nullopt;
}

}  // namespace

void PrefillSpeed::add(uint32_t tokens, TimeNs spent) {
  // What a step costs beside its tokens would dominate shorter ones.
  constexpr uint32_t kTokensMin = 16;
  constexpr double kRemembered = 16'384;
  if (spent <= 0) return;
  std::lock_guard lock(mutex_);
  if (tokens < kTokensMin && tokens_ > 0) return;
  tokens_ += tokens;
  ms_ += milliseconds(spent);
  if (tokens_ > kRemembered) {
    tokens_ /= 2;
    ms_ /= 2;
  }
}

std::optional<double> PrefillSpeed::token_ms() const {
  std::lock_guard lock(mutex_);
  return tokens_ > 0 ? std::optional(ms_ / tokens_) : std::nullopt;
}

std::string path_of(const Place& place, Format format) {
  const bool dots = format == Format::kMessages;
  if (place.message == Place::kTools) return "tools";
  if (place.message < 0) return fmt::format("system.{}", place.block);
  return dots ? fmt::format("messages.{}.content.{}", place.message, place.block)
              : fmt::format("messages[{}].content[{}]", place.message, place.block);
}

Format format_of(const HttpRequest& request, const json::object& body) {
  if (const json::value* route = body.if_contains("route");
      route != nullptr && route->is_string()) {
    return std::string_view(route->get_string()).ends_with("messages") ? Format::kMessages
                                                                       : Format::kChat;
  }
  if (request.header("anthropic-version") != nullptr) return Format::kMessages;
  if (has_any(body, {"system", "stop_sequences", "thinking", "output_config", "cache_control",
                     "diagnostics", "anthropic_version"}))
    return Format::kMessages;
  if (const json::value* messages = body.if_contains("messages");
      messages != nullptr && messages->is_array()) {
    if (const auto format = format_of_messages(messages->get_array())) return *format;
  }
  if (const json::value* tools = body.if_contains("tools");
      tools != nullptr && tools->is_array() && !tools->get_array().empty()) {
    const json::object* first = tools->get_array().front().if_object();
    if (first != nullptr && !first->contains("function")) return Format::kMessages;
  }
  return Format::kChat;
}

Asked Explainer::note(const GenerationRequest& request, const Prompt& prompt) {
  Asked asked;
  asked.document.model = request.model;
  asked.tokens = prompt.tokens;
  // All tools are one block: a list, in which another order is seen as such.
  const std::size_t count = request.tools.size();
  if (count > 0) {
    json::array list;
    for (const Tool& tool : request.tools) list.push_back(tools::definition(tool));
    asked.document.blocks.push_back({"tools", json::serialize(list), {Place::kTools, 0}});
  }
  for (const Turn& turn : request.turns) {
    for (const ContentBlock& block : turn.blocks) {
      asked.document.blocks.push_back({turn.role, block.text, {block.message, block.index}});
    }
  }
  for (std::size_t i = count > 0 ? count - 1 : 0; i < prompt.positions.size(); ++i) {
    asked.ends.push_back(prompt.positions[i].tokens);
  }
  asked.ends.resize(asked.document.blocks.size(), static_cast<uint32_t>(prompt.tokens.size()));
  return asked;
}

void Explainer::admitted(const std::string& name_space, const std::string& id, Asked&& asked,
                         Format format, const engine::Admission& admission) {
  const TimeNs now = clock_.now();
  const uint32_t prompt = admission.prompt_tokens;
  const uint32_t computed = prompt - std::min(prompt, admission.cached_tokens);
  if (computed >= std::max(kMissTokens, prompt / kMissShare)) {
    std::vector<PromptHistory::Entry> last = history_.recent(name_space, now, kComparedInPassing);
    std::size_t tokens = asked.tokens.size();
    std::size_t compared = 0;
    while (compared < last.size() && tokens <= kComparedTokens)
      tokens += last[compared++]->tokens.size();
    last.resize(compared);
    const auto nearest = find_nearest(asked, last, 0, {}, *model_.tokenizer);
    if (nearest) {
      const Explanation found = server::explain::explain(asked, *nearest, admission.cached_tokens,
                                                         *model_.tokenizer, model_.bos_token);
      if (found.cause && found.divergence && found.gain_tokens >= kMissTokens) {
        const Miss miss{path_of(found.divergence->place, format), *found.cause,
                        found.divergence->token, found.gain_tokens};
        const auto line = misses_.add(name_space, miss, now);
        if (line && log_) log_(*line);
      }
    }
  }
  auto remembered = std::make_shared<Remembered>();
  remembered->id = id;
  remembered->document = std::move(asked.document);
  remembered->tokens = std::move(asked.tokens);
  remembered->ends = std::move(asked.ends);
  remembered->at = now;
  history_.add(name_space, std::move(remembered), now);
}

void Explainer::finished(const engine::Admission& admission, const engine::Finished& finished) {
  if (!finished.status || admission.cached_tokens >= admission.prompt_tokens) return;
  speed_.add(admission.prompt_tokens - admission.cached_tokens, finished.prefill_ns);
}

engine::LookUp Explainer::question(const GenerationRequest& request, const Prompt& prompt,
                                   std::string name_space) {
  engine::LookUp question;
  question.tokens = prompt.tokens;
  question.cache_namespace = std::move(name_space);
  question.use_cache = request.use_cache;
  question.beyond_max = kBeyondTokens;
  return question;
}

json::object Explainer::answer(const Asked& asked, Format format, std::string_view name_space,
                               bool use_cache, const engine::LookedUp& known) {
  const TimeNs now = clock_.now();
  const auto prompt_tokens = static_cast<uint32_t>(asked.tokens.size());
  const uint32_t cached = known.found.cached_tokens;
  std::optional<Nearest> nearest;
  Explanation found;
  if (use_cache) {
    const auto candidates = history_.recent(name_space, now);
    nearest = find_nearest(asked, candidates, known.found.matched_tokens, known.found.beyond,
                           *model_.tokenizer);
    if (nearest)
      found =
          server::explain::explain(asked, *nearest, cached, *model_.tokenizer, model_.bos_token);
  }

  json::object out{{"cached_tokens", cached},
                   {"prompt_tokens", prompt_tokens},
                   {"blocks", known.found.blocks},
                   {"lease", nullptr},
                   {"nearest", nullptr},
                   {"divergence", nullptr},
                   {"cause", nullptr}};
  if (const auto& lease = known.found.lease) {
    out["lease"] = json::object{{"ttl", lease->lease == engine::LeaseClass::k1h ? "1h" : "5m"},
                                {"tokens", lease->tokens},
                                {"expires_in_s", rounded(milliseconds(known.lease_left_ns) / 1e3)}};
  }
  if (nearest) {
    json::object near{{"id", nullptr},
                      {"model", nullptr},
                      {"age_s", nullptr},
                      {"prompt_tokens", nearest->tokens.size()},
                      {"shared_tokens", nearest->shared_tokens}};
    if (nearest->prompt != nullptr) {
      near["id"] = nearest->prompt->id;
      near["model"] = nearest->prompt->document.model;
      near["age_s"] = rounded(milliseconds(now - nearest->prompt->at) / 1e3);
      near["prompt_tokens"] = nearest->prompt->tokens.size();
    }
    out["nearest"] = std::move(near);
  }
  if (const auto& divergence = found.divergence) {
    json::object place{{"token", divergence->token},
                       {"message", nullptr},
                       {"block", divergence->place.block},
                       {"path", path_of(divergence->place, format)},
                       {"context", divergence->context},
                       {"cached_text", divergence->cached_text},
                       {"request_text", divergence->request_text}};
    if (divergence->place.message >= 0) place["message"] = divergence->place.message;
    out["divergence"] = std::move(place);
  }
  if (found.cause) out["cause"] = cause_name(*found.cause);
  json::object gain{{"tokens", found.gain_tokens}, {"ms", nullptr}};
  std::optional<double> token_ms = speed_.token_ms();
  if (!token_ms && known.prefill_token_ns > 0) token_ms = milliseconds(known.prefill_token_ns);
  if (found.gain_tokens == 0) token_ms = 0;
  if (token_ms) gain["ms"] = rounded(found.gain_tokens * *token_ms);
  out["gain"] = std::move(gain);
  out["note"] = note_for(found, nearest, known.prefix_cache, use_cache, cached, prompt_tokens);
  return out;
}

}  // namespace pagewise::server::explain
