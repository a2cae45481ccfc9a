"""Letters into a file and out of it again: `dlq export` and `dlq import`.

* `new_file.py` a file that is there whole or not at all; `sinks.py` what letters are written into
* `from_queue.py`, `from_store.py` where letters come from
* `archive_reading.py` an archive, letter by letter
* `into_queue.py`, `into_store.py` where they go
* `left_over.py` which letters of an archive are still to go

The bytes of an archive are `core.letter.archive_format`.
"""
