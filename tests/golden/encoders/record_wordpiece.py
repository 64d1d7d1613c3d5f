"""Writes wordpiece.json: a small vocabulary, texts in many scripts, and the ids that the published WordPiece
tokenizer (transformers' BertTokenizer) gives them, lowered and not.

usage: record_wordpiece.py
"""

from __future__ import annotations

import json
from pathlib import Path

from transformers import BertTokenizer

HERE = Path(__file__).parent
TEXTS = [
    "Hello, world! It's 3.14 o'clock; e-mail me@example.org.",
    "ÀÉÎÕÜ naïve façade Ångström résumé ÇA coöperate",
    "Straße GROẞ İstanbul ıstanbul ŁÓDŹ Øre",
    "Привет, мир! Ёлка и ёж; ЩУКА",
    "Γειά σου Κόσμε! ΣΊΣΥΦΟΣ άέήίόύώ",
    "שָׁלוֹם עולם",
    "مَرْحَبًا بِالعَالَم ١٢٣",
    "नमस्ते दुनिया किताबें",
    "สวัสดีชาวโลก",
    "你好,世界!漢字仮名交じり文",
    "こんにちは世界 カタカナ ガギグゲゴ",
    "안녕하세요 세계 한국어",
    "Tiếng Việt: những người bạn Đặng",
    "emoji 😀👩‍👩‍👧 and ♥ and ™ © ½ ﬁ",
    "tabs\tand\nlines\r\nand\u00a0blanks\u3000wide\u200bzero",
    "controls \u0000\u0001\u007f\u0085\ufffd end",
    "a\u0301 e\u0308 combining n\u0303o",
    "math ∑∫√≤ $5 €7 £8 ^~`|<>=+",
    "ＦＵＬＬ　ｗｉｄｔｈ　１２３",
    "word" * 30,
    "[CLS] and [SEP] in text",
    "",
    "   ",
    "ไทย\u0e33 ລາວ ქართული ᲥᲐᲠᲗᲣᲚᲘ հայերեն አማርኛ",
]


def vocabulary() -> list[str]:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    seen = set(tokens)

    def add(token: str) -> None:
        if token and token not in seen:
            seen.add(token)
            tokens.append(token)

    both = [BertTokenizer(vocab={t: i for i, t in enumerate(tokens)}, do_lower_case=lower) for lower in (True, False)]
    words = set()
    for text in TEXTS:
        for tokenizer in both:
            backend = tokenizer.backend_tokenizer
            normalized = backend.normalizer.normalize_str(text)
            words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized))
    # Some words whole, of the others a beginning and its continuation, by a rule that leaves some unknown.
    for i, word in enumerate(sorted(words)):
        if len(word) > 60 or i % 11 == 10:
            continue
        if i % 3 == 0 or len(word) == 1:
            add(word)
        else:
            cut = 1 + i % max(1, len(word) - 1)
            add(word[:cut])
            add("##" + word[cut:])
            if i % 4 == 0 and len(word) > 3:
                add(word[:cut - 1])
                add("##" + word[-1])
    return tokens


if __name__ == "__main__":
    tokens = vocabulary()
    vocab = {token: i for i, token in enumerate(tokens)}
    cases = []
    for lower in (True, False):
        tokenizer = BertTokenizer(vocab=vocab, do_lower_case=lower)
        for text in TEXTS:
            ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            cases.append({"lowercase": lower, "text": text, "ids": ids})
    unknown = sum(case["ids"].count(1) for case in cases)
    (HERE / "wordpiece.json").write_text(json.dumps({"tokens": tokens, "cases": cases}, ensure_ascii=True) + "\n")
    print(len(tokens), "tokens", len(cases), "cases", unknown, "unknown")
