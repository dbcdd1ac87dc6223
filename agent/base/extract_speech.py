"""Whose words are these? Quotes, code, mail and logs inside a text, and its sentences.

A user's message may carry somebody else's words; only what is left after `own_words` counts as
said by the user. Linear: each pattern consumes what it scans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

QUOTE_MAX_CHARS = 800
SENTENCE_MAX_CHARS = 500
"""A longer run without an end is no sentence that somebody said."""

_FENCE = re.compile(r"\n[ \t]*(```|~~~)")
_RULE_LINE = re.compile(r"\n[ \t]*(?:-{3,}|={3,}|_{3,}|\*{3,})[ \t]*(?=\Z|\n)")
"""These and the next begin with the end of the line before: that is looked for quickly."""
_PAIRS = ('""', "“”", "„“”", "«»", "‹›", "「」", "『』", "``")
_QUOTES = re.compile(
    "|".join(f"{pair[0]}[^{pair[1:]}\n]{{1,{QUOTE_MAX_CHARS}}}[{pair[1:]}]" for pair in _PAIRS)
    + r"|'(?<!\w')[^'\n]{3,300}'(?!\w)|‘(?<!\w‘)[^’\n]{3,300}’(?!\w)"
)
_FOREIGN_LINE = re.compile(
    r"\n[ \t]*(?:>"
    r"|(?://|/\*|<!--|\*/|\"\"\"|'''|<[a-zA-Z/!][^>\n]*>)"
    r"|[{\[][^\n]*\":"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d|[\[(]?\d{1,2}:\d\d[\])]?[ \t]+<?\w{1,30}>?:"
    r"|\[?(?:INFO|WARN|WARNING|ERROR|DEBUG|FATAL|TRACE|CRITICAL)\b"
    r"|[\w./-]+\.\w{1,5}:\d+"
    r"|Traceback \(|at [\w.$]+\(|diff --git|@@ |\+\+\+ |\[[a-z_ ]{2,20}\] "
    r"|(?:note|notice|message|memo|attention|important|hinweis|achtung|avis|nota|aviso)s? "
    r"(?:to|for|an|für|aux?|à|para|al) (?!ne\b)"
    r")[^\n]*",
    re.IGNORECASE,
)
_HEADER_LINE = re.compile(
    r"\n(?:from|to|cc|sent|date|subject|von|an|gesendet|betreff|de|à|envoyé|objet|para|enviado|fecha"
    r"|asunto|发件人|收件人|主题|日期|差出人|宛先|件名|日時)[ \t]*[:：]",
    re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"^[^\n]{0,6}-{2,}[^\n]*(?:forwarded|original|weitergeleitet|ursprüngliche|transféré|d'origine"
    r"|reenviado|转发|原始|転送|元のメッセージ)[^\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
_REPORTS = re.compile(
    r"\b(?:says?|said|writes?|wrote|posted|posts|states?|stated|reads|told (?:me|us|him|her|them)"
    r"|announced|claims?|schreibt|schrieb|sagt|sagte|meint|meinte|steht|lautet|heißt es|dit|écrit"
    r"|disait|affirme|dice|dijo|escribe|escribió|pone|afirma)\b"
    r"|说|說|写道|写着|表示|规定|发了|提示|によると|言って|書いて|とのこと|と出(?:ます|る)"
)
_SOURCE = re.compile(
    r"\b(?:readme|docs?|documentation|guide\w*|manual|wiki|e-?mail|mail|chat|tickets?|post|page|article"
    r"|spec\w*|polic\w+|contract|letter|memo|blog|forum|thread|handbook|terms|notice|licen[cs]e|faq"
    r"|doku\w*|handbuch|vertrag|richtlinie\w*|beitrag|aushang|artikel|seite|brief|hinweis\w*"
    r"|charte|manuel|contrat|courriel|annonce|lettre|règlement|documentation|politique"
    r"|guía|correo|mensaje|contrato|carta|política|artículo|aviso|normativa|folleto)\b"
    r"|文档|手册|邮件|规范|公告|合同|文章|网页|通知|工单|メール|文書|マニュアル|規約|記事|契約|お知らせ|ガイド"
)
"""Documents and messages: what follows a colon behind one stands there."""
_BELIEVED = re.compile(
    r"\b(?:says?|said|thinks?|claims?|wrote|writes|insists?|told (?:us|me|everyone)|believes?"
    r"|wants? (?:us|me|everyone) to|according to|supposedly|apparently|it is said|they say"
    r"|meint|meinte|sagt|sagte|behauptet|schreibt|findet|laut|angeblich|heißt es"
    r"|steht(?:,? dass| in)"
    r"|dit|disent|pense|prétend|écrit|affirme|selon|d[’']après|il paraît"
    r"|dice|dicen|piensa|cree|escribe|afirma|según|al parecer)\b"
    r"|说|說|认为|觉得|声称|按照|根据|据说|听说|言って|言う|によると|によれば|そうです|らしい|とのこと"
)
"""What somebody else holds: no rule of the user's when the user then asks what to make of it."""
_OWN_REPORT = re.compile(
    r"(?:\b(?:i|we|as i|ich|wir|je|j'ai|nous|yo|he)\b|我|私)[^.!?:：\n]{0,12}$"
)
_TO_WORK_ON = re.compile(
    r"\b(?:translat|proofread|correct|rewrit|rephras|summari[sz]|paraphras|spell|polish|review"
    r"|shorten|reword|classif|analy[sz]|friendlier|übersetz|korrigier|formulier|lektorier|kürz|tradui"
    r"|corrig|reformul|résum|reli[rs]|traduc|tradúc|resum|resúm|reescrib|redact|revis|korrektur"
    r"|fass(?:e|t)? .{0,30}zusammen)"
    r"|翻译|翻譯|翻成|译成|譯成|改写|润色|总结|概括|校对|英訳|和訳|翻訳|訳して|要約|添削|校正|書き直"
)
_SHOWN_BELOW = re.compile(
    r"\b(?:this|following|below|here(?:'s| is| are)|found|got|received|folgende\w*|hier|gefunden"
    r"|voici|ci-dessous|trouvé|reçu|ça|siguientes?|aquí|est[eao]s?|encontré|recibí|llegó)\b"
    r"|以下|下面|这是|收到|次の|こちら|見つけ"
)
_GREETING = re.compile(
    r"\n(?:hi|hello|hey|dear|hallo|liebe[rs]?|sehr geehrte[rs]?|guten tag|moin|bonjour|chère?s?"
    r"|salut|hola|estimad[oa]s?|querid[oa]s?|buenos días|大家好|各位|你好|您好|尊敬的|皆様|皆さん"
    r"|お疲れ様)"
    r"[^\n]{0,40}[,，、!！:：]?[ \t]*(?=\Z|\n)",
    re.IGNORECASE,
)
_SIGN_OFF = re.compile(
    r"^(?:(?:best|kind|warm)? ?regards|cheers|best|sincerely|yours|thanks|(?:viele|beste|liebe|mit"
    r" freundlichen)? ?gr(?:ü|u)ße?n?|gruß|lg|vg|cordialement|bien à (?:vous|toi)|bonne journée"
    r"|saludos|atentamente|un saludo|此致|敬礼|祝好|以上|よろしくお願い\w*)"
    r"[^\n]{0,30}(?:\n[^\n]{1,40})?$",
    re.MULTILINE | re.IGNORECASE,
)
_INTRODUCES = re.compile(r"[:?,：，、？](?:[ \t]*\n|(?<=[:：])(?=\s|[\"'“„«「『])|(?<=：))")
_ASKS_BACK = re.compile(r"[?？]|ですか|ますか|でしょうか|[吗呢](?:[。！]|$)")
_LEAD_CHARS = 240
_SENTENCE_START = re.compile(r"[.!?。！？\n][^.!?。！？\n]*\Z")
_OWN_RULES = re.compile(
    r"\b(?:my|our|these) (?:\w+ )?(?:rules?|preferences|constraints|requirements|conventions"
    r"|wishes|guidelines|instructions)\b|\b(?:please|always) (?:follow|respect|observe)\b"
    r"|\b(?:regeln|vorgaben|wünsche|règles|consignes|reglas|normas|preferencias)\b"
    r"|规则|要求|约定|ルール|お願い|決まり",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?](?!\s|$)[^.!?。！？\n]*)*[.!?。！？]*")
_GAP = re.compile(r"[^\n]")


def own_words(text: str) -> str:
    """Return the text with everything that is not the writer's own blanked, at equal length."""
    lines = f"\n{text}"
    spans = [*_blocks(text, lines)]
    spans.extend(_places(_FOREIGN_LINE, lines))
    spans.extend(match.span() for match in _QUOTES.finditer(text))
    if not spans:
        return text
    pieces: list[str] = []
    position = 0
    for start, end in sorted(spans):
        if end <= position:
            continue
        start = max(start, position)
        pieces += (text[position:start], _GAP.sub(" ", text[start:end]))
        position = end
    return "".join([*pieces, text[position:]])


def _places(pattern: re.Pattern[str], lines: str) -> list[tuple[int, int]]:
    """Return the spans in a text of what is found in `lines`, the text behind a line break."""
    return [(match.start(), match.end() - 1) for match in pattern.finditer(lines)]


def _blocks(text: str, lines: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of fenced code, ruled-off blocks, forwarded mail and announced text."""
    for pattern in (_FENCE, _RULE_LINE):
        marks = _places(pattern, lines)
        for number in range(0, len(marks), 2):
            closing = marks[number + 1] if number + 1 < len(marks) else None
            if closing is not None or pattern is _FENCE:
                yield marks[number][0], closing[1] if closing else len(text)
    forwarded = _FORWARDED.search(text) if "--" in text else None
    if forwarded:
        yield forwarded.start(), len(text)
    yield from _letters(text, lines)
    headers = _places(_HEADER_LINE, lines)
    if len(headers) > 1:
        yield headers[0][0], len(text)
    for mark in _INTRODUCES.finditer(text):
        yield from _introduced(text, mark)


def _letters(text: str, lines: str) -> Iterator[tuple[int, int]]:
    """Yield the spans from a greeting inside a text to the end of its letter."""
    for start, end in _places(_GREETING, lines):
        closing = _SIGN_OFF.search(text, end)
        if closing and (start or text[closing.end() :].strip()):
            yield start, closing.end()
        elif start and not closing:
            last = text.rfind("\n\n", end)
            yield start, last if last > end + 2 else len(text)


def is_hearsay(sentence: str, after: str) -> bool:
    """Return whether a sentence tells what somebody else holds, and the user asks what of it.

    `after` is what follows in the text; both in lower case.
    """
    held = _BELIEVED.search(sentence)
    if held is None or _OWN_REPORT.search(sentence, 0, held.start()):
        return False
    return bool(_ASKS_BACK.search(after) or _ASKS_BACK.search(sentence))


def _introduced(text: str, mark: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Yield the span of what a sentence before a colon, or a line before a block, announces."""
    lead = text[max(0, mark.start() - _LEAD_CHARS) : mark.start()].lower()
    begin = _SENTENCE_START.search(lead)
    sentence = lead[begin.start() + 1 :] if begin else lead
    if mark[0][0] in ":：":
        if _TO_WORK_ON.search(sentence):
            yield mark.end(), len(text)
            return
        report = _REPORTS.search(sentence) or _SOURCE.search(sentence)
        if report and not _OWN_REPORT.search(sentence, 0, report.start()):
            yield mark.end(), _paragraph_end(text, mark.end())
            return
    if mark[0].endswith("\n") or text[mark.end() : mark.end() + 2].strip(" \t").startswith("\n"):
        line = lead.rpartition("\n")[2]
        if _SHOWN_BELOW.search(line) and not _OWN_RULES.search(line):
            yield mark.end(), _paragraph_end(text, mark.end())


def _paragraph_end(text: str, position: int) -> int:
    """Return where the paragraph ends that begins at or after a position."""
    while position < len(text) and text[position].isspace():
        position += 1
    end = text.find("\n\n", position)
    return len(text) if end < 0 else end


def sentences(own: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the sentences of a text in which foreign words are blanked."""
    for match in _SENTENCE.finditer(own):
        start, end = match.span()
        said = match[0]
        start += len(said) - len(said.lstrip(" \t-*•·,;:，；："))
        end -= len(said) - len(said.rstrip())
        if start < end <= start + SENTENCE_MAX_CHARS:
            yield start, end
