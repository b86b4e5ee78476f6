#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizers: of each family of tokenizers a small vocabulary as the metadata of a GGUF file, and
the ids that the packages `tokenizers` and `sentencepiece` give for 300 texts with it.

    tests/tools/make_tokenizer_goldens.py [--out FOLDER] [FAMILY..]

Needs the packages of requirements/oracle/tokenizers.txt, which no test does. The vocabularies are trained here on the
texts themselves, through each family's own normaliser and pre-tokenizer as its tokenizer.json states them; so every
merge there is can show. Nothing is random but for fixed seeds.

texts.json: the texts. NAME.ids: numbers in 7-bit groups, low ones first, the high bit set on all but the last: for each
text the count and the ids without control tokens; then for each text the count and the ids with them, or 0 where those
are the same (an empty text has the same).
"""
import argparse
import io
import json
import pathlib
import random
import unicodedata

import gguf
import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers"
MERGES = 220

# ---- Texts

SENTENCES = """\
Hello, world! It's what they've said: we'll see, I'm sure, he'd do, 'tis, DON'T, I'LL, YOU'VE, rock'n'roll, it'ſ.
The quick brown fox jumps over the lazy dog; Pack my box with five dozen liquor jugs!
Der Fluß überquert Straßen: Äpfel, Öl, Übermut und Donaudampfschifffahrtsgesellschaftskapitän.
Où est l'élève ? « Là-bas », répondit-elle ; ça coûte 12,50 €, n'est-ce pas… œuf, garçon.
¿Dónde está el niño? ¡Mañana será otro día! El pingüino comió piñones.
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép.
İstanbul'da ılık bir gün; I ve ı, İ ve i. Đặng Thị Huệ nói tiếng Việt: ngày mai trời nắng.
Съешь ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, ўсё.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ὦ ἄνδρες Ἀθηναῖοι, τί ἐστιν;
שלום עולם, מה שלומך? בְּרֵאשִׁית בָּרָא אֱלֹהִים
مرحبا بالعالم! كيف حالك؟ السَّلَامُ عَلَيْكُمْ ٣٫١٤ ۱۲۳
नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय, ज्ञान, श्री।
আমার সোনার বাংলা। ਸਤ ਸ੍ਰੀ ਅਕਾਲ। ગુજરાતી ભાષા। ଓଡ଼ିଆ ଭାଷା।
தமிழ் மொழி, கொடு, பௌர்ணமி. తెలుగు భాష. ಕನ್ನಡ ಭಾಷೆ ಕೊಡು. മലയാളം ഭാഷ കൊടി. සිංහල කෝ.
สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ພາສາລາວ မြန်မာဘာသာ ភាសាខ្មែរ བོད་སྐད།
你好,世界。今天是2024年5月17日,气温23.5度。「引用」——破折号……
こんにちは世界。カタカナ、ひらがな、ガギグ、ー長音・中黒。ﾊﾝｶｸ
안녕하세요 세계. 한국어는 띄어쓰기가 있습니다. ㄱㄴㄷ
ქართული ენა, հայերեն լեզու, አማርኛ ቋንቋ፣ ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ, ᐃᓄᒃᑎᑐᑦ, ⵜⴰⵎⴰⵣⵉⵖⵜ, монгол ᠮᠣᠩᠭᠣᠯ
H₂O, x², 10⁻³, ½ + ¼ = ¾, №5, ℃, Å, Ω ≠ Ω, ﬁne ﬂow, Ⅷ, ①②③, ㍿, Ǆ ǅ ǆ, ß ẞ
a\u0301 e\u0300 o\u0308 n\u0303 c\u0327 A\u030A s\u0323\u0307 s\u0307\u0323 q\u0307\u0323 \u0301x
\u1112\u1161\u11AB \u1100\u1161\u11A8 각\u11A8 가\u11A8 \u09C7\u09BE \u0BC6\u0BBE
\u0928\u093C \u0958 \u0340 \u2126 \u212B \uF900
""".splitlines()

CODE = [
    "def f(x: int) -> list[str]:\n    \"\"\"Doc.\"\"\"\n    return [str(i) for i in range(x) if i % 2 == 0]\n",
    "int main(int argc, char** argv) {\n\tfor (int i = 0; i < argc; ++i)\n\t\tprintf(\"%s\\n\", argv[i]);\n}\n",
    "template <typename T> auto min(const T& a, T&& b) -> decltype(a < b ? a : b);",
    "SELECT id, COUNT(*) FROM users WHERE name LIKE '%O''Brien%' GROUP BY 1 HAVING COUNT(*) >= 10;",
    "<div class=\"a b\" id='x'>&amp;&nbsp;<!-- no --></div>\r\n<br/>\r\n",
    "{\"key\": [1, 2.5e-3, null, true], \"nested\": {\"a\\u00e9\": \"\\\\n\"}}",
    "fn main() -> Result<(), Box<dyn Error>> { let v: Vec<_> = (0..10).map(|x| x * 2).collect(); Ok(()) }",
    "if [ -f \"$HOME/.bashrc\" ]; then . ~/.bashrc && echo $? >&2; fi # done",
    "$x = $a <=> $b || die \"no: $!\"; @list = map { $_->{name} } @{$self->{items}};",
    "const f = async ({a, ...b}) => `${a}:${await g(b)}` ?? null; // ok\n/* ** */",
    "\\begin{equation}\\frac{\\partial f}{\\partial x_{i+1}} = \\sum_{n=0}^{\\infty} a_n^{2}\\end{equation}",
    "https://user:pw@example.org:8080/path/to/file_name-v1.2.tar.gz?q=a%20b&r=%E2%82%AC#frag",
    "C:\\Users\\me\\AppData\\Local\\Temp\\~df394.tmp /usr/local/lib/python3.11/site-packages/../__init__.py",
    "git commit -m 'fix: don't' --amend && git push -f origin HEAD:refs/heads/main",
    "class HTTPServerFactoryBeanXMLParser2D: snake_case_name = camelCaseName.toUpperCase() + CONST_VALUE_9",
    "[1]: http://a.b  \"T\"\n* item\n  1. sub\n\n| a | b |\n|---|:-:|\n\n```py\nx\n```\n---\n### Head ###",
    "==> 0x1F600, 0b1010, 1_000_000, 3.14f, 1e10, .5, 5., 0777, 1.2.3, v2.0.1-rc.3+build.5",
    "a+=b-=c*=d/=e%=f&=g|=h^=i<<=j>>=k; x->y.*z::w; !a != ~b; c ? d : e; @dec #pragma once $$ ``` \"\"\" '''",
]

EMOJI = [
    "😀😃😄", "👍🏻👍🏼👍🏽👍🏾👍🏿", "👨‍👩‍👧‍👦 👩🏽‍🚀 🧑‍🤝‍🧑", "🏳️‍🌈 🏴‍☠️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇨🇭🇩🇪 🇫🇷🇯🇵🇺🇸", "1️⃣ 2️⃣ #️⃣ *️⃣ 🔟",
    "❤️ ❤ ☺️ ☺ ✌🏿 ☝🏻", "a😀b 😀 c😀", "🤦🏾‍♀️!!! 🤷‍♂️...", "😶‍🌫️ ❤️‍🔥 👁️‍🗨️ 🐻‍❄️",
    "Text ends with 🙂", "🙂\n🙂\r\n🙂\t🙂", "¯\\_(ツ)_/¯ (╯°□°)╯︵ ┻━┻ ʕ•ᴥ•ʔ", "™️ ©️ ® ‼️ ⁉️ 〰️ ㊙️",
    "♔♕♖ ♠♣♥♦ ♪♫ ☀☁☂ ➡⬅ ✓✗ ★☆ ●○", "𝒜𝓑𝔠𝕯 𝟘𝟙𝟚 🄰🅱 Ａｂｃ１２３",
]

NUMBERS = [
    "0 1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890", "3.14159265358979",
    "1,234,567.89 -1.234.567,89 1'000'000", "2024-05-17T23:59:59.999+02:00", "192.168.0.1 fe80::1ff:fe23:4567:890a",
    "+41 (0)44 123 45 67", "١٢٣٤٥٦ ۴۵۶ १२३४ ๑๒๓ ၁၂၃ 一二三 〇", "½¼¾⅓⅔⅛ ²³¹ ⁴⁵₆₇ ⅣⅫⅿ ㊿㈱ ①⑳ 𝟏𝟐𝟑",
    "1st 2nd 3rd 4th 21st 100%", "$1,000 €5.99 £3 ¥100 ₹50 0.5¢", "x1y22z333 a1b2c3 v1.0.0", " 1  2   3    4",
    "1\n22\n333\n4444\n55555\n", "0000 00001 10000 000", "7 + 8 = 15; 9 × 6 ÷ 3 − 1 ≥ ∞", "12:34:56.789",
    "(555) 123-4567 ext. 89", "1e-9 6.022E23 0xDEADBEEF", "٠١٢٣abc٤٥٦", "12³45²67",
]

WHITE = [
    " ", "  ", "   ", "\n", "\n\n", "\t", "\t\t\t", " \n", "\n ", " \t \n \t ", "\r\n", "\r", "\n\r\n\r",
    "a b  c   d    e     f", "  lead", "trail  ", "\n\n\nx\n\n \n\n", "x \n y \n\n z", "\u00a0a\u00a0\u00a0b",
    "a\u3000b\u3000\u3000", "\u2003em\u2009thin\u200bzero\u2060wj\ufeffbom", "a\u0085b\u2028c\u2029d",
    "\v\f\x1c\x1d\x1e\x1f", "a\u180eb\u1680c\u202fd\u205fe", "        eight", "\t    mixed \t  tabs",
    "if x:\n        y\n            z\n", "  \n  \n  ", "!\n\n?\n \n.", "1  \n 2 \t3", "a\u2581b\u2581c ",
    "'\n's \n't", "end \r\n\r\n next", ". \n.\n . \n\n .", "é \u00a0 é", "/\n//\n///\n\n/", "中 文\n\n 字 ",
    "\x00\x01\x02 \x7f", "   \u00a0   ", "\n\t\n\t\n",
]

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "[INST]", "[/INST]", "<|start_of_role|>",
           "<|end_of_role|>", "<|user|>", "<|assistant|>", "<|end|>", "<start_of_turn>", "<end_of_turn>"]
ADDED = ["<think>", "</think>", "<tool_call>"]  # added, and no control tokens
TYPED = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<s>[INST] Hi [/INST] Hello</s>",
    "[INST]\n\n Hi[/INST]  Ho",
    "<|user|>\nHi there<|end|>\n<|assistant|>\n", "<|user|> \t\n\u00a0\u3000x<|end|><|end|>\n\n<|assistant|>y",
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "<|start_of_role|>system<|end_of_role|>S<|endoftext|>\n", "<think>\nok\n</think>\n\nDone.<|im_end|>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "a<|im_end|>b", "a <|im_end|> b", "<|im_end|",
    "|im_end|>", "<|im_<|im_end|>end|>", "<|im_end|><|im_end|>", "<|im_end |>", "<|IM_END|>", "<s", "<s>>", "<<s>",
    "</s></s>x", "s>", "[INST", "[[INST]]", "<think", "<think><think>", "</think>.", "<s> x", " <s>x",
    "<|endoftext|>\n\n", "x\n<|end|>\n\n\ny", "<unk>", "<0x0A>", "<0xE4><0xB8>", "<|user|>", "<|assistant|>\n",
]

LONG = ["a" * 300, "ab" * 120, "Lorem" * 30, "é" * 100, "漢字" * 60, "ا" * 90, "!" * 200, "=" * 77 + "\n" + "-" * 77,
        "0" * 150, " " * 130 + "x", "\n" * 90, "e\u0301" * 40, "\u0301" * 30, "👍🏽" * 20]


def scripts(chance):
    """Words of every script that has ten letters, by how its characters are named."""
    groups = {}
    for code in range(0x370, 0x20000):
        character = chr(code)
        if unicodedata.category(character) not in ("Lu", "Ll", "Lo", "Lt"):
            continue
        name = unicodedata.name(character, "TANGUT")
        for word in (" LETTER", " SYLLABLE", " CAPITAL", " SMALL", " SIGN", " IDEOGRAPH", " CHARACTER", " LIGATURE"):
            name = name.split(word)[0]
        groups.setdefault(name, []).append(character)
    kept = [letters for _, letters in sorted(groups.items()) if len(letters) >= 10]
    words = ["".join(chance.choices(letters, k=chance.randint(2, 5))) for letters in kept]
    return [" ".join(words[i:i + 2]) + chance.choice(["", ".", "\n", " 1"]) for i in range(0, len(words), 2)]


def soup(chance, count):
    """Bytes as a lossy decoder reads them, and pieces of everything."""
    out = [bytes(chance.choices(range(256), k=24)).decode("utf-8", "replace") for _ in range(count // 2)]
    pieces = [*"aBz '.,!_-<|>$&/()0189\n\t\r", "  ", "ll", "'S", "'re", "é", "e\u0301", "ß", "Ǆ", "中", "ア", "한", "ا",
              "\u200d", "🙂", "½", "\u00a0", "\u3000", "<s>", "123", "\r\n", "//", "ʼ", "ª", "ⅷ", "\u0903", "_"]
    return out + ["".join(chance.choices(pieces, k=chance.randint(5, 25))) for _ in range(count - count // 2)]


def texts():
    chance = random.Random(11)
    groups = [["", *SENTENCES], CODE, EMOJI, NUMBERS, WHITE, TYPED, LONG, scripts(chance)]
    out = [text for group in groups for text in group]
    return out + soup(chance, 300 - len(out))


# ---- Byte-level BPE

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(numbers, behind=""):
    first = r"[^\r\n\p{L}\p{N}]?"
    return (f"{first}{CAPITALS}*{SMALL}+{behind}|{first}{CAPITALS}+{SMALL}*{behind}|{numbers}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(expression):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), "isolated"), byte_level(False)])


def single_digits():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])


def falcon():
    return pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])


# Of each: the pre-tokenizer, whether NFC comes first, whether the vocabulary wins over the merges.
BPE = {
    "gpt-2": (lambda: byte_level(True), False, False),
    "llama-bpe": (lambda: split(LLAMA3), False, True),
    "qwen2": (lambda: split(LLAMA3.replace("{1,3}", "")), True, False),
    "smollm": (single_digits, False, False),
    "falcon": (falcon, False, False),
    "tekken": (lambda: split(cased(r"\p{N}")), False, True),
    "gpt-4o": (lambda: split(cased(r"\p{N}{1,3}", CONTRACTIONS + "?")), False, False),
    "dbrx": (lambda: split(LLAMA3), False, False),
    "command-r": (single_digits, True, False),
    "olmo": (lambda: byte_level(True), True, False),
    "refact": (single_digits, False, False),
}
# Tokens that no merge leads to: only a vocabulary that wins finds them.
WHOLE = [" jumps", "Pack", " liquor", "überquert", " Straßen", "世界", " слово", "!!!", "123", " world"]


def train_bpe(name, given):
    pre_tokenizer, composes, whole = BPE[name]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=whole))
    tokenizer.pre_tokenizer = pre_tokenizer()
    if composes:
        tokenizer.normalizer = normalizers.NFC()
    # Each family learns from another order of texts, so that no two vocabularies are the same.
    order = list(given) + SENTENCES * 3
    random.Random(name).shuffle(order)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(order[:len(order) * 4 // 5], trainer)
    if whole:
        state = json.loads(tokenizer.to_str())
        vocabulary = state["model"]["vocab"]
        for word in WHOLE:
            spelled = "".join(part for part, _ in byte_level(False).pre_tokenize_str(word))
            vocabulary.setdefault(spelled, len(vocabulary))
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    return tokenizer


def add_tokens(tokenizer, control, added, **more):
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True, **more) for t in control])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in added])


def reference_ids(tokenizer, given):
    """(without control tokens, with them)"""
    found = []
    for plain in (True, False):
        tokenizer.encode_special_tokens = plain
        found.append([tokenizer.encode(text, add_special_tokens=False).ids for text in given])
    return found


def writer(path, architecture, model, pre):
    out = gguf.GGUFWriter(path, architecture)
    out.add_tokenizer_model(model)
    out.add_tokenizer_pre(pre)
    return out


def finish(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()


def make_bpe(name, given, folder):
    tokenizer = train_bpe(name, given)
    add_tokens(tokenizer, CONTROL, ADDED)
    state = json.loads(tokenizer.to_str())
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.get)
    assert sorted(vocabulary.values()) == list(range(len(tokens)))
    types = [gguf.TokenType.CONTROL if t in CONTROL else gguf.TokenType.USER_DEFINED if t in ADDED
             else gguf.TokenType.NORMAL for t in tokens]
    out = writer(folder / f"{name}.gguf", "llama", "gpt2", name)
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    out.add_bos_token_id(vocabulary["<s>"])
    out.add_eos_token_id(vocabulary["</s>"])
    finish(out)
    return reference_ids(tokenizer, given)


# ---- SentencePiece

# Of each: the architecture, whether a space comes first, tokens added to the model, how the packages treat what is
# behind control tokens.
SPM = {
    "llama-spm": ("llama", True, [], {}),
    "phi3-spm": ("phi3", True, [], {"rstrip": True}),
    "gemma-spm": ("gemma", False, ["\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "<table>"], {}),
}


def train_spm(name):
    _, prefix, defined, _ = SPM[name]
    model = io.BytesIO()
    lines = [line for text in CODE + SENTENCES * 3 for line in text.splitlines() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=900, hard_vocab_limit=False,
        character_coverage=0.98, byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix,
        user_defined_symbols=defined, num_threads=1, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def as_bpe(model, name):
    """The same model in the form that transformers converts it to: merges from the scores."""
    _, prefix, defined, _ = SPM[name]
    pieces = {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    normal = {piece: i for piece, i in pieces.items()
              if piece not in defined and not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))}
    merges = []
    for piece, i in normal.items():
        halves = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        halves = [(a, b) for a, b in halves if a in normal and b in normal]
        merges += [(-model.get_score(i), normal[a], normal[b], a, b) for a, b in halves]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        pieces, [(a, b) for *_, a, b in sorted(merges)], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("\u2581")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    return tokenizer


def make_spm(name, given, folder):
    architecture, prefix, defined, treatment = SPM[name]
    model = train_spm(name)
    size = model.get_piece_size()
    tokens = [model.id_to_piece(i) for i in range(size)]
    types = [gguf.TokenType.UNKNOWN if model.is_unknown(i) else gguf.TokenType.CONTROL if model.is_control(i)
             else gguf.TokenType.BYTE if model.is_byte(i) else gguf.TokenType.USER_DEFINED if tokens[i] in defined
             else gguf.TokenType.NORMAL for i in range(size)]
    scores = [model.get_score(i) for i in range(size)]
    more = [token for token in CONTROL if token not in tokens]
    out = writer(folder / f"{name}.gguf", architecture, "llama", "default")
    out.add_token_list([*tokens, *more])
    out.add_token_scores([*scores, *([-1000.0] * len(more))])
    out.add_token_types([*types, *([gguf.TokenType.CONTROL] * len(more))])
    out.add_bos_token_id(model.bos_id())
    out.add_eos_token_id(model.eos_id())
    out.add_add_space_prefix(prefix)
    finish(out)

    tokenizer = as_bpe(model, name)
    keeps = ["<unk>", "<s>", "<|endoftext|>"] if treatment else ["<unk>"]
    for token in ["<unk>", *[t for t in tokens + more if t in CONTROL]]:
        add_tokens(tokenizer, [token], [], **({} if token in keeps else treatment))
    plain, special = reference_ids(tokenizer, given)
    own = [model.encode(text) for text in given]
    if not defined:
        assert own == plain, [(t, a, b) for t, a, b in zip(given, own, plain) if a != b][0]
        return plain, special
    # What the model defines itself, the other package's form of it does not know: parts around control tokens then.
    return own, [split_at_control(text, tokenizer, model) for text in given]


def split_at_control(text, tokenizer, model):
    spelled = sorted(CONTROL + ["<unk>"], key=len, reverse=True)
    out, at, begin = [], 0, 0
    while at < len(text):
        token = next((t for t in spelled if text.startswith(t, at)), None)
        if token is None:
            at += 1
            continue
        out += model.encode(text[begin:at]) + [tokenizer.token_to_id(token)]
        at = begin = at + len(token)
    return out + model.encode(text[begin:])


# ---- Files

def number(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def main():
    families = [*BPE, *SPM]
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(families))
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.families if name not in families]:
        parser.error(f"no such family: {unknown[0]}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    given = texts()
    assert len(given) == 300 == len(set(given)), (len(given), len(set(given)))
    (arguments.out / "texts.json").write_text(json.dumps(given, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    for name in arguments.families or families:
        plain, special = (make_bpe if name in BPE else make_spm)(name, given, arguments.out)
        data = b"".join(number(len(ids)) + b"".join(map(number, ids)) for ids in plain)
        for ids, usual in zip(special, plain):
            data += number(0) if ids == usual else number(len(ids)) + b"".join(map(number, ids))
        (arguments.out / f"{name}.ids").write_bytes(data)
        differ = sum(a != b for a, b in zip(plain, special))
        print(f"{name}: {sum(map(len, plain))} ids, {differ} texts with control tokens")


if __name__ == "__main__":
    main()
