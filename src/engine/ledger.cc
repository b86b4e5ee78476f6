// SPDX-License-Identifier: Apache-2.0
#include "engine/ledger.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/hash.h"

namespace pagewise::engine {

TokenUse& TokenUse::operator+=(const TokenUse& other) {
  requests += other.requests;
  computed += other.computed;
  reused += other.reused;
  input += other.input;
  created_5m += other.created_5m;
  created_1h += other.created_1h;
  read += other.read;
  generated += other.generated;
  return *this;
}

TokenUse LedgerPage::total() const {
  TokenUse sum;
  for (const TokenUse& use : by_tariff) sum += use;
  return sum;
}

kv::CacheUsage reported_usage(const Admission& admission, BillRule rule) {
  kv::CacheUsage usage;
  usage.read_tokens = admission.cache_read_tokens;
  usage.created_1h_tokens = admission.cache_created_1h_tokens;
  usage.created_5m_tokens = admission.cache_created_5m_tokens;
  usage.input_tokens = admission.input_tokens;
  if (rule == BillRule::kMarkers) return usage;
  // The ends of the three parts, as in B7, none of them before what was reused.
  const uint32_t a = admission.cached_tokens;
  const uint32_t hour_end = usage.read_tokens + usage.created_1h_tokens;
  const uint32_t b = usage.created_1h_tokens == 0 ? a : std::max(a, hour_end);
  const uint32_t c =
      usage.created_5m_tokens == 0 ? b : std::max(b, hour_end + usage.created_5m_tokens);
  return {a, c - b, b - a, admission.prompt_tokens - c};
}

Ledger::Ledger(uint32_t tariffs) : tariffs_(tariffs) { PW_CHECK(tariffs > 0); }

LedgerPage& Ledger::page(std::string_view account) {
  auto found = pages_.find(account);
  if (found == pages_.end() && pages_.size() >= kAccountsMax) found = pages_.find(kOthers);
  if (found == pages_.end()) {
    if (pages_.size() >= kAccountsMax) account = kOthers;
    found = pages_.try_emplace(std::string(account)).first;
    found->second.by_tariff.resize(tariffs_);
  }
  return found->second;
}

TokenUse& Ledger::use(LedgerPage& page, uint32_t tariff) const {
  return page.by_tariff[tariff < tariffs_ ? tariff : 0];
}

void Ledger::admit(const Admitted& admitted) {
  const Admission& admission = admitted.admission;
  LedgerPage& page = this->page(admitted.cache.account);
  TokenUse& use = this->use(page, admitted.cache.tariff);
  const kv::CacheUsage usage = reported_usage(admission, admitted.cache.bill);
  ++use.requests;
  use.computed += admission.prompt_tokens - admission.cached_tokens;
  use.reused += admission.cached_tokens;
  use.input += usage.input_tokens;
  use.created_5m += usage.created_5m_tokens;
  use.created_1h += usage.created_1h_tokens;
  use.read += usage.read_tokens;
  const auto saved =
      static_cast<TimeNs>(std::llround(admitted.prefill_token_ns * admission.cached_tokens));
  page.prefill_saved_ns += saved;
  prefill_saved_ns_ += saved;
  if (!admitted.cache.markers.empty()) note_prefixes(page, admitted);
}

void Ledger::generated(const CacheOptions& cache, uint64_t tokens) {
  use(page(cache.account), cache.tariff).generated += tokens;
}

/// What this request's markers read and wrote, by the contract (never by what memory happened to
/// hold): a read counts for its prefix and for all those before it, whose parts it read, too.
void Ledger::note_prefixes(LedgerPage& page, const Admitted& admitted) {
  const CacheOptions& cache = admitted.cache;
  const Admission& admission = admitted.admission;
  const uint64_t space = xxh3(std::as_bytes(std::span(cache.cache_namespace)));
  const auto digest_of = [&](uint32_t tokens) {
    const uint64_t digest = xxh3(std::as_bytes(admitted.prompt.first(tokens)), space);
    return digest == 0 ? uint64_t{1} : digest;  // 0 is none
  };
  const uint32_t read = admission.cache_read_tokens;
  uint64_t parent = read > 0 ? digest_of(read) : 0;
  // A chain may have lost a middle part, and never has more parts than the page has prefixes.
  PrefixUse* hit = read > 0 ? find(page, parent) : nullptr;
  for (std::size_t i = 0; hit != nullptr && i < kPrefixesMax; ++i) {
    ++hit->reads;
    hit->read += hit->own;
    hit->used = admitted.now;
    hit = hit->parent == 0 ? nullptr : find(page, hit->parent);
  }
  // Markers that took no lease stand behind all that was created.
  const uint32_t end = read + admission.cache_created_1h_tokens + admission.cache_created_5m_tokens;
  uint32_t begin = read;
  for (const CacheMarker& marker : cache.markers) {
    if (marker.position >= cache.positions.size()) continue;
    const uint32_t tokens = cache.positions[marker.position].tokens;
    if (tokens <= begin || tokens > end || tokens < admitted.marker_tokens_min) continue;
    const uint64_t digest = digest_of(tokens);
    PrefixUse& prefix = find_or_add(page, digest);
    prefix.digest = digest;
    prefix.parent = parent;
    prefix.tokens = tokens;
    prefix.own = tokens - begin;
    prefix.tariff = cache.tariff < tariffs_ ? cache.tariff : 0;
    // What is created before the last 1h marker is billed as 1h, whatever marks it (B7).
    const bool hour = tokens <= read + admission.cache_created_1h_tokens;
    prefix.lease = hour ? LeaseClass::k1h : LeaseClass::k5m;
    (hour ? prefix.created_1h : prefix.created_5m) += prefix.own;
    ++prefix.writes;
    prefix.used = admitted.now;
    parent = digest;
    begin = tokens;
  }
}

PrefixUse* Ledger::find(LedgerPage& page, uint64_t digest) {
  const auto found = std::find_if(page.prefixes.begin(), page.prefixes.end(),
                                  [&](const PrefixUse& prefix) { return prefix.digest == digest; });
  return found == page.prefixes.end() ? nullptr : &*found;
}

/// Without room the one that was used longest ago is forgotten.
PrefixUse& Ledger::find_or_add(LedgerPage& page, uint64_t digest) {
  if (PrefixUse* found = find(page, digest)) return *found;
  if (page.prefixes.size() < kPrefixesMax) return page.prefixes.emplace_back();
  PrefixUse& oldest =
      *std::min_element(page.prefixes.begin(), page.prefixes.end(),
                        [](const PrefixUse& a, const PrefixUse& b) { return a.used < b.used; });
  if (oldest.reads == 0) {
    ++page.unread_forgotten;
    page.unread_forgotten_tokens += oldest.created_5m + oldest.created_1h;
  }
  oldest = PrefixUse();
  return oldest;
}

}  // namespace pagewise::engine
