// SPDX-License-Identifier: Apache-2.0
#include "server/explain/explanation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/explain/classify.h"
#include "server/explain/plain_text.h"
#include "server/explain/shared_runs.h"
#include "server/json_text.h"
#include "text/utf8.h"

namespace pagewise::server::explain {
namespace {

// What is shown on either side of the place: enough to recognise it, never a whole prompt.
constexpr std::size_t kTextBytes = 160;
constexpr std::size_t kContextBytes = 80;
constexpr std::size_t kTextTokens = 64;  // that are decoded for it

uint32_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<uint32_t>(parted.first - a.begin());
}

/// The answer's text: up to the control token that ends it.
std::string plain_text(std::span<const TokenId> tokens, const text::Tokenizer& tokenizer) {
  const auto end = std::find_if(tokens.begin(), tokens.end(),
                                [&](TokenId token) { return tokenizer.is_control(token); });
  return valid_utf8(tokenizer.decode({tokens.begin(), end}, true));
}

/// The index of the block that `token` lies in or in front of; the last one behind all.
std::size_t block_of(std::span<const uint32_t> ends, uint32_t token) {
  const auto found = std::upper_bound(ends.begin(), ends.end(), token);
  return found == ends.end() ? ends.size() - (ends.empty() ? 0 : 1)
                             : static_cast<std::size_t>(found - ends.begin());
}

/// What a prompt said of which only the cache knows: the blocks up to the place of parting are
/// those of the prompt asked about.
Document document_of_tokens(const Asked& asked, uint32_t matched, std::span<const TokenId> beyond,
                            const text::Tokenizer& tokenizer) {
  Document document{asked.document.model, {}};
  if (asked.document.blocks.empty()) return document;
  const std::size_t parted = block_of(asked.ends, matched);
  document.blocks.assign(asked.document.blocks.begin(),
                         asked.document.blocks.begin() + static_cast<std::ptrdiff_t>(parted) + 1);
  Block& last = document.blocks.back();
  const uint32_t begin = parted == 0 ? 0 : asked.ends[parted - 1];
  const auto shared = std::span(asked.tokens).subspan(begin, matched - std::min(matched, begin));
  const std::string before = tokenizer.decode(shared, true);
  // The template's own text stands in front of the block's.
  std::size_t length = std::min(before.size(), last.text.size());
  while (length > 0 && !before.ends_with(std::string_view(last.text).substr(0, length))) --length;
  last.text.resize(length);
  last.text += plain_text(beyond, tokenizer);
  return document;
}

/// An earlier prompt and the answer that the cache still knows.
Document with_answer(const Remembered& prompt, std::span<const TokenId> answer,
                     const text::Tokenizer& tokenizer) {
  Document document = prompt.document;
  const int32_t last = document.blocks.empty()
                           ? Place::kSystem
                           : std::max(Place::kSystem, document.blocks.back().place.message);
  document.blocks.push_back({"assistant", plain_text(answer, tokenizer), {last + 1, 0}});
  return document;
}

/// Which earlier prompt this one was made from: the one that shares most, wherever it stands. The
/// same last question says that it is the same request, changed; another model that it is not,
/// unless all else is equal. Of near equals the newest.
struct Score {
  uint64_t points = 0;
  uint32_t from_start = 0;
};

constexpr uint64_t kNewerPoints = 32;      // an older one must share 8 tokens more
constexpr std::size_t kQuestionBytes = 8;  // shorter ones repeat by chance

std::string_view last_question(const Document& document) {
  for (auto block = document.blocks.rbegin(); block != document.blocks.rend(); ++block) {
    if (block->role == "user") return block->text;
  }
  return {};
}

bool same_blocks(const Document& a, const Document& b) {
  return std::equal(
      a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
      [](const Block& x, const Block& y) { return x.role == y.role && x.text == y.text; });
}

struct Sides {
  std::string context, text;
};

/// Bytes at the end that are the beginning of a character.
std::size_t cut_character(std::string_view text) {
  std::size_t lead = text.size();
  while (lead > 0 && text.size() - lead < 3 &&
         (static_cast<unsigned char>(text[lead - 1]) & 0xC0) == 0x80)
    --lead;
  const bool cut = lead > 0 && static_cast<unsigned char>(text[lead - 1]) >= 0xC0 &&
                   text::utf8_unit(text.substr(lead - 1)).kind == text::Utf8Kind::kIncomplete;
  return cut ? text.size() - lead + 1 : 0;
}

/// The text around token `at`; what is cut off of a character is left out.
Sides text_around(std::span<const TokenId> tokens, std::size_t at,
                  const text::Tokenizer& tokenizer) {
  const std::size_t first = at > kTextTokens ? at - kTextTokens : 0;
  std::string before = tokenizer.decode(tokens.subspan(first, at - first), true);
  std::string behind =
      tokenizer.decode(tokens.subspan(at, std::min(kTextTokens, tokens.size() - at)), true);
  // A token may begin inside a character: it belongs to what differs.
  if (const std::size_t cut = cut_character(before)) {
    behind.insert(0, before.substr(before.size() - cut));
    before.resize(before.size() - cut);
  }
  if (const std::size_t cut = cut_character(behind)) behind.resize(behind.size() - cut);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  if (behind.size() > kTextBytes) {
    std::size_t end = kTextBytes;
    while (end > 0 && continues(behind[end])) --end;
    behind.resize(end);
  }
  // Its beginning is cut in any case, by tokens or by bytes: to the next whole character.
  std::size_t begin = before.size() > kContextBytes ? before.size() - kContextBytes : 0;
  while (begin < before.size() && continues(before[begin])) ++begin;
  before.erase(0, begin);
  return {valid_utf8(before), valid_utf8(behind)};
}

}  // namespace

std::optional<Nearest> find_nearest(const Asked& asked,
                                    std::span<const PromptHistory::Entry> candidates,
                                    uint32_t matched, std::span<const TokenId> beyond,
                                    const text::Tokenizer& tokenizer) {
  const SharedRuns runs(asked.tokens);
  const auto score = [&](std::span<const TokenId> tokens, const Document* document) {
    const auto all = static_cast<uint32_t>(asked.tokens.size());
    const uint32_t from_start = common_tokens(asked.tokens, tokens);
    const uint32_t shared = std::min(from_start + runs.count(tokens.subspan(from_start)), all);
    // What agrees from the start counts half as much again: that is what a cache can read.
    Score score{uint64_t{4} * shared + uint64_t{2} * from_start, from_start};
    if (document == nullptr || shared == 0) return score;
    const std::string_view question = last_question(*document);
    if (question.size() >= kQuestionBytes && question == last_question(asked.document))
      score.points += uint64_t{2} * all;
    const bool same_model = document->model == asked.document.model;
    const bool same_texts = same_blocks(*document, asked.document);
    if (same_model && same_texts) score.points += kNewerPoints + 1;
    if (!same_model && !same_texts) score.points = score.points * 3 / 4;
    return score;
  };
  std::optional<Nearest> nearest;
  Score best;
  for (const PromptHistory::Entry& candidate : candidates) {
    const Score here = score(candidate->tokens, &candidate->document);
    if (here.points == 0 || (nearest && here.points <= best.points + kNewerPoints)) continue;
    best = here;
    nearest = Nearest{candidate, {}, {}, here.from_start, 0};
  }
  if (nearest) {
    nearest->document = nearest->prompt->document;
    nearest->tokens = nearest->prompt->tokens;
  }
  if (matched > 0) {
    std::vector<TokenId> cached(asked.tokens.begin(), asked.tokens.begin() + matched);
    cached.insert(cached.end(), beyond.begin(), beyond.end());
    // The prompt that it began as, when that is known: then the rest is its answer.
    PromptHistory::Entry origin;
    for (const PromptHistory::Entry& candidate : candidates) {
      const auto size = std::min(candidate->tokens.size(), cached.size());
      if (common_tokens(candidate->tokens, cached) == size &&
          (!origin || size > origin->tokens.size()))
        origin = candidate;
    }
    const Score here = score(cached, origin ? &origin->document : nullptr);
    if (!nearest || here.points > best.points) {
      Document document;
      if (origin && origin->tokens.size() <= matched) {
        const std::span<const TokenId> all = cached;
        document = with_answer(*origin, all.subspan(origin->tokens.size()), tokenizer);
      } else if (origin) {
        document = origin->document;
      } else {
        document = document_of_tokens(asked, matched, beyond, tokenizer);
      }
      nearest = Nearest{origin, std::move(document), std::move(cached), matched, 0};
    }
  }
  if (nearest && nearest->shared_tokens < asked.tokens.size()) {
    const std::size_t from = nearest->shared_tokens;
    const SharedRuns behind(std::span<const TokenId>(nearest->tokens).subspan(from));
    nearest->shared_behind = behind.count(std::span<const TokenId>(asked.tokens).subspan(from));
  }
  return nearest;
}

Explanation explain(const Asked& asked, const Nearest& nearest, uint32_t cached_tokens,
                    const text::Tokenizer& tokenizer, std::string_view bos) {
  Explanation out;
  const auto prompt_tokens = static_cast<uint32_t>(asked.tokens.size());
  const uint32_t shared = nearest.shared_tokens;
  const bool part = shared < std::min<std::size_t>(asked.tokens.size(), nearest.tokens.size());
  const Finding finding =
      classify({nearest.document, asked.document, nearest.shared_behind, part, bos});
  out.cause = finding.cause;
  if (part) {
    Divergence divergence;
    divergence.token = std::max(shared, std::min(cached_tokens, prompt_tokens - 1));
    divergence.block = finding.block < asked.document.blocks.size() && out.cause != Cause::kModel
                           ? finding.block
                           : block_of(asked.ends, shared);
    if (divergence.block < asked.document.blocks.size())
      divergence.place = asked.document.blocks[divergence.block].place;
    Sides mine = text_around(asked.tokens, shared, tokenizer);
    divergence.context = std::move(mine.context);
    divergence.request_text = std::move(mine.text);
    divergence.cached_text = text_around(nearest.tokens, shared, tokenizer).text;
    out.divergence = std::move(divergence);
  }
  if (out.cause && out.cause != Cause::kModel) {
    const double behind = prompt_tokens - shared;
    const auto readable = static_cast<uint32_t>(std::lround(behind * finding.readable_share));
    const uint32_t computed = prompt_tokens - 1 - std::min(prompt_tokens - 1, cached_tokens);
    out.gain_tokens = std::min(std::max(nearest.shared_behind, readable), computed);
  }
  return out;
}

}  // namespace pagewise::server::explain
