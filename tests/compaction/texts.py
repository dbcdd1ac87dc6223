"""Texts that summarisers wrote: good ones by hand, poor ones by the embedded model."""

from __future__ import annotations

GOOD = {
    "repair of a parser": """\
## Current request and state
Making `tests/test_dates.py` green; two of three tests pass, `test_empty_field` still fails at \
line 48.
## Standing instructions
"Never touch the fixtures." "Keep Python 3.11 compatible."
## Done
- On 2026-11-29 `src/importer/parse.py` was rewritten to read one line at a time [14].
- `ruff` and `mypy` were run and are clean [19].
## Decisions
Dates stay naive because the legacy report compares them as text; time zones were ruled out [16].
## Errors and fixes
`ValueError: unconverted data remains: 00Z` came from the trailing zone; it is cut off before \
parsing.
## Values
Test database: port 5433 (5432 before). Sample order id: ORD-20931.""",
    "many files with one prefix": """\
## Done
- The exporter was split into modules [31].
## Files
- src/app/export/csv.py: writes rows, quoting fixed
- src/app/export/json.py: new, streams arrays
- src/app/export/xml.py: read only, to be deleted
- src/app/export/__init__.py: lost its re-exports
- src/app/export/zip.py: wraps the three others
- src/app/export/cli.py: takes --format now
- tests/app/export/test_csv.py: six cases
- tests/app/export/test_json.py: empty, covers nothing yet
- tests/app/export/test_zip.py: fails on big files
## Open questions
Whether xml.py has users outside; nobody answered.""",
    "a chat about a journey": """\
## Current request and state
The user (Ines) plans a journey to Norway from 3 to 12 June with two children; flights to Bergen \
are booked, hotels are not.
## Standing instructions
No night trains. At most 180 euros a night. Vegetarian food for one child.
## Done
- The Flåm railway was explained; seats for 7 June at 10:20 were looked up, 68 euros each [12].
- A packing list was written and accepted [20].
## Decisions
The ferry over the Nærøyfjord instead of the bus, because the younger child gets car sick.
## Open questions
Does the hotel in Voss allow a late arrival? The user wanted to phone.
## Values
Booking code KX7Q2M. Rental car quote: 412 euros.""",
    "chinese": """\
## 当前请求与状态
用户正在排查订单服务的超时问题，已确认数据库连接池耗尽，下一步准备把上限从 20 调到 50。
## 长期要求
所有改动必须先在测试环境验证；回复使用中文。
## 已完成
- 2026-11-28 读取了 config/pool.yaml，发现 max_size 为 20 [7]。
- 在日志中找到报错 "QueuePool limit of size 20 overflow 10 reached" [9]。
## 决定
不增加重试次数，因为下游支付接口不是幂等的。
## 未解决的问题
高峰时段的并发数还没有数据。
## 数值
测试库端口 5433，监控面板编号 8841。""",
    "german": """\
## Aktueller Auftrag und Stand
Das Backup-Skript `sichern.sh` soll nachts um 2 Uhr laufen; der Eintrag in der crontab fehlt noch.
## Dauerhafte Wünsche
Keine Daten ausserhalb von /srv speichern. Antworten auf Deutsch.
## Erledigt
- Am 30.11. wurde `sichern.sh` auf rsync umgestellt und einmal von Hand ausgeführt: 14 GB in 6 \
Minuten [22].
- Der alte Ordner /srv/alt wurde auf Wunsch gelöscht [25].
## Fehler
`rsync error: some files vanished (code 24)` ist harmlos und wird abgefangen.
## Werte
Zielrechner: nas02, Pfad /volume1/backup, Benutzer backup (uid 1044).""",
    "short for a short talk": """\
## Current request and state
The user compares three phones; the assistant recommended the Fairphone for its battery, and the
user leaned to it without having decided.
## Values
Budget 450 euros; needs a headphone socket.""",
    "plain prose without headings": """\
The user asked for a comparison of message queues for a service that handles about 300 jobs a \
second.
RabbitMQ, NATS and a plain PostgreSQL table were discussed. PostgreSQL was chosen on 2026-11-20
because the team already runs it and jobs must be written in the same transaction as the order [11];
SKIP LOCKED was shown, and a first version stands in jobs/worker.py. A load test reached 1,150 \
jobs a
second with eight workers. Still open: how failed jobs are retried, and who is paged. The user wants
short answers and no new dependency.""",
    "a table of measurements": """\
## Done
Four settings were measured on the build machine, three runs each [40-52].
## Values
| setting | wall time | memory |
|---|---|---|
| -O0, no cache | 212 s | 3.1 GB |
| -O0, ccache | 74 s | 3.2 GB |
| -O2, no cache | 301 s | 3.8 GB |
| -O2, ccache | 88 s | 3.9 GB |
## Decisions
-O2 with ccache for nightly builds, -O0 with ccache for pull requests; distcc was ruled out since \
the
second machine is on another network.
## Open questions
Why the linker needs 3 GB even without debug information.""",
    "updated notes": """\
## Current request and state
Release 2.4 is being prepared; the changelog is written, the tag is not set because CI job
`wheel-macos` is red (run 88214).
## Standing instructions
"Ask before you push anything." "Use conventional commits."
## Done
- 2026-11-02: the deprecated `Client.get_all` was removed [5].
- 2026-11-09: issue 731 (memory leak in the watcher) was fixed by closing the inotify handle [33].
- 2026-11-30: version numbers were raised in pyproject.toml and docs/conf.py [61].
## Decisions
No support for Python 3.9 any more, because tomllib is needed; the user agreed [18].
## Errors and fixes
`error: can't find Rust compiler` on macOS: unsolved; pinning cryptography to 42.0 is being \
tried.""",
    "what a support agent did": """\
## Current request and state
Customer 40117 (Ms Okafor) reports a double charge of 59.90 on 12 November; the second charge was
refunded, a confirmation mail is still to be sent.
## Standing instructions
Sign as "Team Billing". Never mention internal ticket numbers to customers.
## Done
- Charges ch_3Pq and ch_3Pr were found; ch_3Pr was refunded on 30 November [8, 10].
- The customer's address was corrected to 14 Harbour Lane [12].
## Decisions
No voucher, since the policy asks for a second incident first.
## Open questions
The customer asked whether invoices can be sent to her accountant; nobody has answered yet.""",
}

POOR = {
    "says that it cannot": """\
You can't read the notes, just a series of sentences that may explain your situation.

A message of gratitude for the prompt.

You're free to share your thoughts.

I'm sure you'll want to know about the history of Rome.

A question about Rome's past.

That's all I can give you.""",
    "describes notes": """\
The notes are in the format of what are called "Note-based system" (BBS) and are very similar to \
the \
previous notes. The new notes are in the format of the previous notes, which is in the format of \
what \
are called "Note-based system" (BBS).

The new notes are written in the format of what are called "Note-based system" (BBS).""",
    "one line again": """\
It is important to remember to check the date and the weather.
It is important to write a cover letter.
It is important to write a cover letter.
It is important to remember to check the date and the weather.
It is important to write a cover letter.""",
    "headings of the prompt again": """\
The user's newest message is kept elsewhere:
## Current request and state
What is being worked on, how far it is, what the next step was going to be.
This is a past fact; no person can change this.
Standing instructions
Wishes, limits and preferences of the user that still applies, in the user's own words.
The user's newest message is kept elsewhere:
## Current request and state
What is being worked on, how far it is, what the next step was going to be.
This is a past fact; no person can change this.
Standing instructions
Wishes, limits and preferences of the user that still applies, in the user's own words.""",
    "rows carried on": """\
The material is: [1 user] Please tell me about planning a garden with tomatoes. I need it for a \
friend, file number 8364.
[2 assistant] Rome was founded in 753 BC by tradition; the republic began in 509 BC and Augustus \
became emperor in 27 BC.
The text is: [1 user] Please tell me about how bread rises. I need it for a friend, file number \
1464.
[8 assistant] Yeast eats sugar in the dough and gives off carbon dioxide, which gluten traps. Let \
it \
rise for 90 minutes at 26 degrees.
The text is: [3 user] Please tell me about how bread rises. I need it for a friend, file number \
1464.
[7 assistant] Yeast eats sugar in the dough and gives off carbon dioxide, which gluten traps. Let \
it \
rise for 90 minutes at 26 degrees.
The text is: [8 user] Please tell me about how bread rises. I need it for a friend, file number \
1464.""",
    "the prompt and then the material": """\
## Current request and state
What is being worked on, how far it is, what the next step was going to be.
## Standing instructions
Wishes, limits and preferences of the user that still apply, in the user's own words.
## Done
One line for each finished piece of work: what was done, to what, with which result.
## Decisions
What was decided, why, and what was ruled out.

Material, from the oldest row to the newest:
<material>
[1 user] Please tell me about how bread rises. I need it for work, file number 5121.
[2 assistant] Yeast eats sugar in the dough and gives off carbon dioxide, which gluten traps. Let \
it \
rise for 90 minutes at 26 degrees.
[3 user] Please tell me about writing a cover letter. I need it for school, file number 8056.
[4 assistant] Rome was founded by tradition in 753 BC,""",
    "stamps": """\
```python
# 1. 2023-08-29 2:45:17.601183.121108.134184,  # 2 user, assistant, 2023-08-29 \
2:45:17.601183.121108.134184
# 3. 2023-08-29 2:45:17.601183.121108.134184, # 4 user, assistant, 2023-08-29 \
2:45:17.601183.121108.134184
# 5. 2023-08-29 2:45:17.601183.121108.134184, # 6 user, assistant, 2023-08-29 \
2:45:17.601183.121108.134184
# 7. 2023-08-29 2""",
    "a list of rows": """\
The material is:
- [1 user] Please tell me about sorting algorithms. I need it for my sister, file number 8628.
- [2 assistant] Quicksort takes n log n on average, merge sort always; insertion sort is good for \
short lists.
- [3 user] Please tell me about learning to play chess. I need it for the school, file number 2854.
- [4 assistant] Learn the moves, then tactics such as forks and pins, and play slow games of 15 \
minutes.
- [6 user] Please tell me about learning to play a new game of chess. I need it for the school, \
file \
number 2854.""",
    "fluent and going round": """\
The user's newest message is kept elsewhere; no greeting or comment will be made. The material \
below \
describes what has been done to the user's file number 3385, which they are not allowed to do \
anything \
about. They have a choice of how to proceed with their work and decide whether to continue \
working on \
it or stop.
The user is asked for information about sorting algorithms; this can be found in the list that \
follows. The user needs to know what was decided by tradition; this will only happen if they are \
not \
allowed to do anything else. They need to learn how vaccines work, which is explained later. The \
user \
has a choice of fixing their leaky tap and taking it apart again; there is no comment about this \
process being done in the list that follows.
The user's file number 3385 needs to be closed by removing the washer of 12 mm from the handle, \
which \
will only happen if they are not allowed to do anything else. The user has a choice of how to \
proceed \
with their work; this can only happen when they have no other options available.
The user's file number 7113 needs to be replaced by another file number that is different from \
the one \
used for previous days, which will only happen if they are not allowed to do anything else. The \
user \
has a choice of how to close their valve; this can only happen when they have no other options \
available.""",
}
