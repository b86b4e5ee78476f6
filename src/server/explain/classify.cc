// SPDX-License-Identifier: Apache-2.0
#include "server/explain/classify.h"

#include <algorithm>
#include <string>
#include <vector>

#include "server/explain/order_text.h"
#include "server/explain/plain_text.h"
#include "server/explain/time_text.h"
#include "server/explain/volatile_text.h"

namespace pagewise::server::explain {
namespace {

// What stands behind a difference counts as shared from so many tokens on: in instructions, where
// every difference is one too many, and in messages, where phrases repeat by chance. The latter is
// most of a block of 32: less is not worth a change.
constexpr uint32_t kSharedInSystem = 8;
constexpr uint32_t kSharedInMessages = 24;

using Blocks = std::vector<Block>;

/// Two documents from their first different blocks on.
struct Parting {
  const Blocks& before;
  const Blocks& after;
  std::size_t block;   // index into both
  std::size_t offset;  // bytes of both texts that agree

  bool past_end() const { return block >= before.size() || block >= after.size(); }
  const Block& a() const { return before[block]; }
  const Block& b() const { return after[block]; }
  std::string_view text_a() const { return a().text; }
  std::string_view text_b() const { return b().text; }
};

bool same(const Block& a, const Block& b) { return a.role == b.role && a.text == b.text; }

Parting part(const Document& before, const Document& after) {
  std::size_t block = 0;
  while (block < before.blocks.size() && block < after.blocks.size() &&
         same(before.blocks[block], after.blocks[block]))
    ++block;
  Parting parting{before.blocks, after.blocks, block, 0};
  if (!parting.past_end()) parting.offset = common_text(parting.text_a(), parting.text_b());
  return parting;
}

std::string texts_from(const Blocks& blocks, std::size_t first) {
  std::string out;
  for (std::size_t i = first; i < blocks.size(); ++i) out += blocks[i].text;
  return out;
}

/// Texts long enough that their equality is no chance, or whole blocks.
bool same_begin(std::string_view a, std::string_view b) {
  return a == b || loose_match(a, b).convincing();
}

// ---- Template ---------------------------------------------------------------------------------

/// The first blocks of one side without those of a role that the other side does not have there.
bool system_turn_comes_or_goes(const Blocks& with, const Blocks& without, std::size_t block) {
  if (block >= with.size() || with[block].role != "system") return false;
  if (block < without.size() && without[block].role == "system") return false;
  std::size_t behind = block;
  while (behind < with.size() && with[behind].role == "system") ++behind;
  if (block == without.size() || behind == with.size()) return false;
  return with[behind].role == without[block].role &&
         same_begin(with[behind].text, without[block].text);
}

/// The same words in other blocks: cut elsewhere, joined, or in another message.
bool texts_regrouped(const Parting& p) {
  const LooseMatch whole = loose_match(texts_from(p.before, p.block), texts_from(p.after, p.block));
  const std::size_t shorter = std::min(p.text_a().size(), p.text_b().size());
  const bool beyond = whole.a_offset > shorter && whole.b_offset > shorter;
  if (p.a().role != p.b().role)
    return same_begin(p.text_a(), p.text_b()) || (beyond && whole.convincing());
  // One of the two blocks ends where the other goes on with what follows the first.
  const LooseMatch here = loose_match(p.text_a(), p.text_b());
  if (here.a_ended == here.b_ended) return false;
  const Blocks& cut = here.a_ended ? p.before : p.after;
  if (p.block + 1 >= cut.size()) return false;
  const std::string_view uncut =
      here.a_ended ? p.text_b().substr(here.b_offset) : p.text_a().substr(here.a_offset);
  return same_begin(uncut, cut[p.block + 1].text) ||
         loose_match(uncut, cut[p.block + 1].text).convincing(24);
}

constexpr std::string_view kMarkers[] = {"[INST]",
                                         "[/INST]",
                                         "<<SYS>>",
                                         "<</SYS>>",
                                         "[SYSTEM_PROMPT]",
                                         "[/SYSTEM_PROMPT]",
                                         "<start_of_turn>user",
                                         "<start_of_turn>model",
                                         "<start_of_turn>",
                                         "<end_of_turn>",
                                         "</s>",
                                         "<eos>",
                                         "### Instruction:",
                                         "### Response:",
                                         "### Human:",
                                         "### Assistant:",
                                         "### User:",
                                         "### System:",
                                         "### Input:",
                                         "Human:",
                                         "Assistant:",
                                         "User:",
                                         "System:",
                                         "HUMAN:",
                                         "ASSISTANT:",
                                         "USER:",
                                         "SYSTEM:",
                                         "Instruction:",
                                         "Response:"};
constexpr std::string_view kBos[] = {"<s>",
                                     "<bos>",
                                     "<|begin_of_text|>",
                                     "<|startoftext|>",
                                     "<|endoftext|>",
                                     "<|bos|>",
                                     "[BOS]",
                                     "<BOS>",
                                     "<|begin▁of▁sentence|>",
                                     "<｜begin▁of▁sentence｜>",
                                     "<|im_start|>",
                                     "<|start|>",
                                     "[CLS]",
                                     "<|beginoftext|>",
                                     "<|START_OF_TURN_TOKEN|>",
                                     "<BOS_TOKEN>",
                                     "<|begin_of_sentence|>",
                                     "[gMASK]"};

/// The length of a control token's spelling, with the role that follows it.
std::size_t marker_length(std::string_view text) {
  if (text.starts_with("<|") || text.starts_with("<｜")) {
    const std::size_t end = text.substr(0, 48).find("|>");
    const std::size_t wide = text.substr(0, 48).find("｜>");
    std::size_t length = end != std::string_view::npos    ? end + 2
                         : wide != std::string_view::npos ? wide + std::string_view("｜>").size()
                                                          : 0;
    if (length == 0) return 0;
    for (const std::string_view role : {"system", "user", "assistant", "model", "tool"}) {
      if (text.substr(length).starts_with(role)) return length + role.size();
    }
    return length;
  }
  for (const std::string_view marker : kMarkers) {
    if (text.starts_with(marker)) return marker.size();
  }
  return 0;
}

std::string without_markers(std::string_view text, std::size_t& markers) {
  std::string out;
  markers = 0;
  for (std::size_t i = 0; i < text.size();) {
    const bool may_start = text[i] == '<' || text[i] == '[' || i == 0 || text[i - 1] == '\n';
    const std::size_t length = may_start ? marker_length(text.substr(i)) : 0;
    if (length == 0) {
      out += text[i++];
      continue;
    }
    ++markers;
    i += length;
  }
  return out;
}

/// A client that writes the template's own text around its words, or does so no longer.
bool markers_come_or_go(const Parting& p) {
  std::size_t in_a = 0, in_b = 0;
  const std::string a = without_markers(p.text_a(), in_a), b = without_markers(p.text_b(), in_b);
  return (in_a > 0 || in_b > 0) && loose_match(a, b).convincing() &&
         !loose_match(p.text_a(), p.text_b()).convincing();
}

/// Letters and digits alone: what is left of a text without tags, headings, bullets, punctuation.
std::string words_only(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') {
      const std::size_t end = text.substr(i, 64).find('>');
      const bool tag = end != std::string_view::npos && end > 1 &&
                       text.substr(i, end).find(' ') == std::string_view::npos;
      if (tag) {
        // An opening tag's name stands where a heading's words would.
        if (text[i + 1] != '/') out += words_only(text.substr(i + 1, end - 1));
        i += end;
        continue;
      }
    }
    if (is_word(text[i])) out += lower(text[i]);
  }
  return out;
}

bool markup_changed(const Parting& p) {
  const std::string a = words_only(p.text_a()), b = words_only(p.text_b());
  return !a.empty() && a == b;
}

// ---- BOS and white space ----------------------------------------------------------------------

std::string_view without_bos(std::string_view text, std::string_view own) {
  while (true) {
    const std::size_t blank = white_space_run(text);
    std::string_view rest = text.substr(blank);
    std::size_t length = !own.empty() && rest.starts_with(own) ? own.size() : 0;
    for (const std::string_view spelling : kBos) {
      if (length == 0 && rest.starts_with(spelling)) length = spelling.size();
    }
    if (length == 0) return text;
    text = rest.substr(length);
  }
}

bool bos_comes_or_goes(const Parting& p, std::string_view own) {
  const std::string_view a = without_bos(p.text_a(), own), b = without_bos(p.text_b(), own);
  const std::size_t cut_a = p.text_a().size() - a.size(), cut_b = p.text_b().size() - b.size();
  if (cut_a == 0 && cut_b == 0) return false;
  return p.offset <= std::max(cut_a, cut_b) && same_begin(a, b);
}

bool white_space_differs(const Parting& p) {
  const std::size_t begin = white_space_begin(p.text_a(), p.offset);
  const std::string_view a = p.text_a().substr(begin), b = p.text_b().substr(begin);
  const std::string_view run_a = a.substr(0, white_space_run(a));
  const std::string_view run_b = b.substr(0, white_space_run(b));
  if (run_a == run_b) return false;
  return loose_match(a, b).convincing(6);
}

// ---- Changing pieces --------------------------------------------------------------------------

/// Whether the two go on alike behind the piece, looking away from more pieces of the kind.
bool goes_on_alike(std::string_view a, std::string_view b) {
  for (int pieces = 0; pieces < 8; ++pieces) {
    const std::size_t shared = common_text(a, b);
    if (shared == a.size() && shared == b.size()) return true;
    if (shared >= 24) return true;
    const auto change = volatile_change_at(a, b, shared);
    if (!change || change->begin > shared) return false;
    a = a.substr(change->a_end);
    b = b.substr(change->b_end);
  }
  return false;
}

/// The piece stands on one side only: "[14:03] Hello" and "Hello".
std::optional<Cause> piece_comes_or_goes(const Parting& p) {
  for (const bool in_b : {true, false}) {
    const std::string_view with = in_b ? p.text_b() : p.text_a();
    const std::string_view without = in_b ? p.text_a() : p.text_b();
    if (with.size() <= without.size()) continue;
    const std::size_t end = p.offset + (with.size() - without.size());
    // It must be all that was added.
    if (end - p.offset > 120 || with.substr(end) != without.substr(p.offset)) continue;
    for (std::size_t i = p.offset; i < end; ++i) {
      if (!is_word(with[i]) || (i > 0 && is_word(with[i - 1]))) continue;
      const auto span = time_span_at(with, i);
      if (span && span->begin >= white_space_begin(with, p.offset) && span->end <= end)
        return span->has_time ? Cause::kTimeStamp : Cause::kDate;
      // An identifier is one that would be if it differed by a digit.
      std::string other(with);
      const std::size_t digit = other.find_first_of("0123456789", i);
      if (digit == std::string::npos || digit >= end) continue;
      other[digit] = other[digit] == '9' ? '0' : static_cast<char>(other[digit] + 1);
      const auto change = volatile_change_at(with, other, digit);
      if (change && change->cause == Cause::kId) return Cause::kId;
    }
  }
  return std::nullopt;
}

// ---- The whole --------------------------------------------------------------------------------

/// In the last thing that somebody asked, on either side, or behind it.
bool in_last_message(const Parting& p) {
  const auto asked = [&](const Blocks& blocks) {
    const auto last = std::find_if(blocks.rbegin(), blocks.rend(),
                                   [](const Block& block) { return block.role == "user"; });
    return last != blocks.rend() && blocks[p.block].role != "system" &&
           blocks[p.block].place.message >= last->place.message;
  };
  return asked(p.before) || asked(p.after);
}

/// All system blocks are there, in another order.
bool system_blocks_swapped(const Parting& p) {
  const auto texts = [&](const Blocks& blocks) {
    std::vector<std::string_view> out;
    for (std::size_t i = p.block; i < blocks.size() && blocks[i].role == "system"; ++i)
      out.push_back(blocks[i].text);
    std::sort(out.begin(), out.end());
    return out;
  };
  const auto a = texts(p.before);
  return a.size() >= 2 && a == texts(p.after);
}

/// What of the text behind the parting agrees when white space, or the form, is looked away from.
double loose_share(const Parting& p) {
  const std::string a = texts_from(p.before, p.block), b = texts_from(p.after, p.block);
  const LooseMatch match =
      loose_match(std::string_view(a).substr(p.offset), std::string_view(b).substr(p.offset));
  const std::size_t all = b.size() - p.offset;
  if (all == 0) return 0;
  return std::min(1.0, static_cast<double>(match.b_offset) / static_cast<double>(all));
}

std::optional<Cause> structure(const Parting& p) {
  if (system_turn_comes_or_goes(p.after, p.before, p.block) ||
      system_turn_comes_or_goes(p.before, p.after, p.block))
    return Cause::kTemplate;
  if (!p.past_end() && texts_regrouped(p)) return Cause::kTemplate;
  return std::nullopt;
}

std::optional<Cause> moved(const Parting& p, uint32_t shared_behind) {
  if (p.past_end()) return std::nullopt;
  const bool system = p.b().role == "system" || p.b().role == "tools";
  if (system && system_blocks_swapped(p)) return Cause::kMoved;
  return shared_behind >= (system ? kSharedInSystem : kSharedInMessages)
             ? std::optional(Cause::kMoved)
             : std::nullopt;
}

/// What changed inside one block of the same role on both sides.
std::optional<Cause> inside_block(const Parting& p, const Evidence& evidence, Finding& finding) {
  const std::string_view a = p.text_a(), b = p.text_b();
  if (bos_comes_or_goes(p, evidence.bos)) return Cause::kBos;
  if (white_space_differs(p)) {
    finding.readable_share = loose_share(p);
    return Cause::kWhiteSpace;
  }
  if (markers_come_or_go(p)) return Cause::kTemplate;
  const bool asking = in_last_message(p);
  if (const auto order = order_change_at(a, b, p.offset)) {
    const auto rest = static_cast<double>(b.size() - p.offset);
    finding.readable_share =
        rest > 0 ? std::min(1.0, static_cast<double>(order->b_end - p.offset) / rest) : 0;
    if (order->cause != Cause::kMoved) return order->cause;
    if (auto cause = moved(p, evidence.shared_behind)) return cause;
    finding.readable_share = 0;
  }
  if (const auto change = volatile_change_at(a, b, p.offset)) {
    const bool alike = goes_on_alike(a.substr(change->a_end), b.substr(change->b_end));
    const bool much = evidence.shared_behind >= kSharedInMessages;
    if (asking ? (change->announced && alike) || much
               : alike || evidence.shared_behind >= kSharedInSystem)
      return change->cause;
  }
  if (!asking) {
    if (const auto cause = piece_comes_or_goes(p)) return cause;
  }
  if (!asking && markup_changed(p)) return Cause::kTemplate;
  return moved(p, evidence.shared_behind);
}

}  // namespace

Finding classify(const Evidence& evidence) {
  const Parting p = part(evidence.before, evidence.after);
  Finding finding;
  finding.block = p.block;
  finding.offset = p.offset;
  if (evidence.tokens_part) {
    const bool same_texts =
        p.block == evidence.before.blocks.size() && p.block == evidence.after.blocks.size();
    if (same_texts) {
      // The same request, rendered to other tokens: the template wrote something else.
      finding.cause = Cause::kTemplate;
    } else if ((finding.cause = structure(p))) {
      finding.readable_share = loose_share(p);
    } else if (!p.past_end() && p.a().role == p.b().role) {
      finding.cause = inside_block(p, evidence, finding);
    } else {
      finding.cause = moved(p, evidence.shared_behind);
    }
  }
  if (!finding.cause && evidence.before.model != evidence.after.model)
    finding.cause = Cause::kModel;
  return finding;
}

}  // namespace pagewise::server::explain
