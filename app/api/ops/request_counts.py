"""Counts of answered requests, kept in memory that all processes of a server share.

Every process writes to a region of its own and reads all of them, so any process can answer for the whole server. A
process that is started again continues in the region of the one before it: no count ever goes backwards.
"""

import mmap
import struct
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# A region: microseconds, one number for each bucket, connections used and idle, then records of a key and its count.
MICROSECONDS, FIRST_BUCKET = 0, 1
USED, IDLE = FIRST_BUCKET + len(BOUNDS) + 1, FIRST_BUCKET + len(BOUNDS) + 2
HEADER_BYTES = 8 * (IDLE + 1)
RECORD = struct.Struct("=152sQ")
MAX_RECORDS = 4000
REGION_BYTES = HEADER_BYTES + MAX_RECORDS * RECORD.size
NUMBER = struct.Struct("=Q")
Key = tuple[str, str, str]
OTHER = ("other", "other", "other")


class RequestCounts:
    """Requests by method, route and status, how long they took, and the connections to the database."""

    def __init__(self, processes: int = 1) -> None:
        self._memory = mmap.mmap(-1, processes * REGION_BYTES)
        self._regions = range(0, processes * REGION_BYTES, REGION_BYTES)
        self._lock = threading.Lock()
        self.use_region(0)

    def use_region(self, index: int) -> None:
        """Write to the region of the process with this index from now on."""
        self._start = self._regions[index]
        self._places = {key: place for key, place, _ in self._records(self._start)}

    def note(self, method: str, rule: str, status: int, seconds: float) -> None:
        with self._lock:
            self._add(self._place((method, rule, str(status))), 1)
            self._add(self._start + 8 * (FIRST_BUCKET + bisect_left(BOUNDS, seconds)), 1)
            self._add(self._start + 8 * MICROSECONDS, round(seconds * 1_000_000))

    def note_connections(self, used: int, idle: int) -> None:
        NUMBER.pack_into(self._memory, self._start + 8 * USED, used)
        NUMBER.pack_into(self._memory, self._start + 8 * IDLE, idle)

    def lines(self) -> Iterator[str]:
        counts: Counter[Key] = Counter()
        for start in self._regions:
            counts.update({key: count for key, _, count in self._records(start)})
        yield "# HELP upshot_requests_total Requests answered."
        yield "# TYPE upshot_requests_total counter"
        for (method, rule, status), count in sorted(counts.items()):
            yield f'upshot_requests_total{{method="{method}",route="{rule}",status="{status}"}} {count}'
        yield "# HELP upshot_request_seconds How long requests took."
        yield "# TYPE upshot_request_seconds histogram"
        total = 0
        for number, bound in enumerate((*map(str, BOUNDS), "+Inf")):
            total += self._sum(FIRST_BUCKET + number)
            yield f'upshot_request_seconds_bucket{{le="{bound}"}} {total}'
        yield f"upshot_request_seconds_sum {self._sum(MICROSECONDS) / 1_000_000:.6f}"
        yield f"upshot_request_seconds_count {total}"
        yield "# HELP upshot_database_connections Connections of the server's processes."
        yield "# TYPE upshot_database_connections gauge"
        yield f'upshot_database_connections{{state="used"}} {self._sum(USED)}'
        yield f'upshot_database_connections{{state="idle"}} {self._sum(IDLE)}'

    def _place(self, key: Key) -> int:
        """Where the count of the key is. When all records are taken, new keys share one."""
        if key not in self._places and len(self._places) >= MAX_RECORDS - 1:
            key = OTHER
        if key not in self._places:
            record = self._start + HEADER_BYTES + len(self._places) * RECORD.size
            RECORD.pack_into(self._memory, record, "\n".join(key).encode(), 0)
            self._places[key] = record + RECORD.size - NUMBER.size
        return self._places[key]

    def _records(self, start: int) -> Iterator[tuple[Key, int, int]]:
        """(key, place, count) of each record of a region."""
        for number in range(MAX_RECORDS):
            record = start + HEADER_BYTES + number * RECORD.size
            text, count = RECORD.unpack_from(self._memory, record)
            if not text[0]:
                return
            method, rule, status = text.rstrip(b"\0").decode().split("\n")
            yield (method, rule, status), record + RECORD.size - NUMBER.size, count

    def _add(self, place: int, amount: int) -> None:
        NUMBER.pack_into(self._memory, place, NUMBER.unpack_from(self._memory, place)[0] + amount)

    def _sum(self, field: int) -> int:
        return sum(NUMBER.unpack_from(self._memory, start + 8 * field)[0] for start in self._regions)
