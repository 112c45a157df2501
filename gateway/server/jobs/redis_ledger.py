"""The ledger of gateways that share their jobs: Redis, or Valkey. A claim is a lease by the clock of that server.

unended, ended, due        sorted sets of jobs: by creation, by end, and (webhooks) by when each is to be sent
running                    set of those that have begun
all:OWNER, open:OWNER      sorted sets: a key's jobs, and those that have not ended
job:ID                     hash: the row as it was made, and what has changed since
inputs:ID, texts:ID        hashes by part: its input; its text, until it is done
done:ID                    hash by part: length and file of its audio
free:ID                    sorted set of parts that are not done: by number, or by the end of their lease
attempts:ID                hash by part
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs.cutting import Part
from voicegate.gateway.server.jobs.files import PartAudio
from voicegate.gateway.server.jobs.ledger import Claim, DonePart, JobRow, State
from voicegate.gateway.server.jobs.settings import JobSettings

# From the last renewal on; others then take the part. Lower -> work is done twice after a short outage; higher -> parts
# of a gateway that died wait longer.
LEASE_S: Final = 30.0
# For one answer; a command is sent once more. Lower -> a Redis that writes its log to a slow disk seems dead.
_TIMEOUT_S: Final = 3.0
_PREFIX: Final = "voicegate:jobs:"
_UNENDED: Final = f"{_PREFIX}unended"
_RUNNING: Final = f"{_PREFIX}running"
_ENDED: Final = f"{_PREFIX}ended"
_DUE_HOOKS: Final = f"{_PREFIX}due"

# Each may be run twice: its answer can get lost.
_HEAD: Final = f"""
local function key(name, id) return '{_PREFIX}' .. name .. ':' .. id end
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1e6
"""
_CLAIM: Final = """
local most, jobs, found, at, last = tonumber(ARGV[2]), {}, {}, 1, #ARGV - 2
for each = 1, last do jobs[each] = ARGV[each + 2] end
while at <= last and #found < most do
    local id = jobs[at]
    local part = redis.call('ZRANGEBYSCORE', key('free', id), '-inf', now, 'LIMIT', 0, 1)[1]
    if part then
        redis.call('ZADD', key('free', id), now + ARGV[1], part)
        redis.call('SADD', KEYS[1], id)
        table.insert(found, {id, part, redis.call('HINCRBY', key('attempts', id), part, 1)})
        last = last + 1
        jobs[last] = id
    end
    at = at + 1
end
return found
"""
_RENEW: Final = """
local held = {}
for at = 2, #ARGV, 2 do
    local free = key('free', ARGV[at])
    local is_open = redis.call('ZSCORE', free, ARGV[at + 1])
    if is_open then redis.call('ZADD', free, now + ARGV[1], ARGV[at + 1]) end
    table.insert(held, is_open and 1 or 0)
end
return held
"""
_FINISH: Final = """
local id, part, made = ARGV[1], ARGV[2], ARGV[3]
local done = redis.call('HGET', key('done', id), part)
if done then return done end
if redis.call('ZREM', key('free', id), part) == 0 then return '' end
redis.call('HSET', key('done', id), part, made)
redis.call('HDEL', key('texts', id), part)
for at = 5, #ARGV, 2 do redis.call('HINCRBY', key('job', id), ARGV[at], ARGV[at + 1]) end
if redis.call('ZCARD', key('free', id)) == 0 then redis.call('ZADD', key('free', id), ARGV[4], ARGV[4]) end
return made
"""
_END: Final = """
local id, job = ARGV[1], key('job', ARGV[1])
if redis.call('EXISTS', job) == 0 or redis.call('HEXISTS', job, 'ended_s') == 1 then return 0 end
redis.call('HSET', job, 'ended_s', ARGV[2], unpack(ARGV, 3))
redis.call('ZREM', KEYS[1], id)
redis.call('ZREM', key('open', redis.call('HGET', job, 'owner')), id)
redis.call('SREM', KEYS[2], id)
redis.call('DEL', key('free', id), key('texts', id), key('attempts', id))
redis.call('ZADD', KEYS[3], ARGV[2], id)
if redis.call('HEXISTS', job, 'webhook') == 1 then redis.call('ZADD', KEYS[4], now, id) end
return 1
"""
_DUE: Final = """
local id = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
if not id then return {} end
local attempt = redis.call('HINCRBY', key('attempts', id), 'webhook', 1)
if attempt < #ARGV then redis.call('ZADD', KEYS[1], now + ARGV[attempt], id) else redis.call('ZREM', KEYS[1], id) end
return {id, attempt}
"""


class RedisLedger:
    def __init__(self, settings: JobSettings) -> None:
        self.failures: tuple[type[Exception], ...] = (RedisError,)
        self._settings = settings
        self._redis: Any = connected(settings)  # by its types each answer may be one to wait for
        scripts = (_CLAIM, _RENEW, _FINISH, _END, _DUE)
        self._claim, self._renew, self._finish, self._end, self._due = (
            self._redis.register_script(_HEAD + script) for script in scripts
        )
        self._known: dict[str, JobRow] = {}  # that have not ended

    def close(self) -> None:
        self._redis.close()

    # --- jobs ---------------------------------------------------------------------------------------------

    def check_room(self, owner: str) -> None:
        self._check_room(self._redis, owner)

    def _check_room(self, redis: Any, owner: str) -> None:
        num_of_key, num_in_all = redis.zcard(_key("open", owner)), redis.zcard(_UNENDED)
        self._settings.check_room(num_of_key=num_of_key, num_in_all=num_in_all)

    def add(self, job: JobRow, parts: Sequence[Part]) -> None:
        def write(redis: Any) -> None:
            self._check_room(redis, job.owner)
            redis.multi()
            redis.hset(_key("job", job.id), mapping=_kept(job))
            redis.hset(_key("inputs", job.id), mapping={number: part.input for number, part in enumerate(parts)})
            redis.hset(_key("texts", job.id), mapping={number: part.text for number, part in enumerate(parts)})
            redis.zadd(_key("free", job.id), {str(number): number for number in range(len(parts))})
            for name in (_UNENDED, _key("open", job.owner), _key("all", job.owner)):
                redis.zadd(name, {job.id: job.created_s})

        try:
            self._redis.transaction(write, _UNENDED, _key("open", job.owner))
        except RedisError as error:  # it repeats the command, and so the text
            raise RedisError(str(error).rpartition("caused error: ")[2]) from None

    def get(self, job_id: str) -> JobRow | None:
        return self._rows([job_id])[0]

    def of_owner(self, owner: str, limit: int) -> list[JobRow]:
        ids = self._redis.zrange(_key("all", owner), 0, limit - 1, desc=True)
        return [row for row in self._rows(ids) if row is not None]

    def unended(self) -> list[JobRow]:
        with self._redis.pipeline() as asking:
            asking.zrange(_UNENDED, 0, -1).smembers(_RUNNING)
            ids, running = asking.execute()
        unknown = [job_id for job_id in ids if job_id not in self._known]
        known = self._known | {row.id: row for row in self._rows(unknown) if row is not None}
        self._known = {job_id: known[job_id] for job_id in ids if job_id in known}
        return [_begun(row, row.id in running) for row in self._known.values()]

    def _rows(self, ids: Sequence[str]) -> list[JobRow | None]:
        with self._redis.pipeline(transaction=False) as asking:
            for job_id in ids:
                asking.hgetall(_key("job", job_id)).sismember(_RUNNING, job_id)
            answers = asking.execute()
        return [_row(told, is_running) for told, is_running in zip(answers[::2], answers[1::2], strict=True)]

    def end(self, job_id: str, state: State, error: str | None, now_s: float) -> bool:
        told = ["state", state.value] if error is None else ["state", state.value, "error", error]
        return bool(self._end(keys=[_UNENDED, _RUNNING, _ENDED, _DUE_HOOKS], args=[job_id, now_s, *told]))

    def remove(self, job_id: str) -> None:
        owner = self._redis.hget(_key("job", job_id), "owner")
        with self._redis.pipeline() as removing:
            removing.delete(*(_key(name, job_id) for name in ("job", "inputs", "texts", "done", "free", "attempts")))
            for name in (_UNENDED, _ENDED, _DUE_HOOKS, _key("open", owner), _key("all", owner)):
                removing.zrem(name, job_id)
            removing.srem(_RUNNING, job_id).execute()

    def ended_before(self, ended_s: float) -> list[str]:
        return list(self._redis.zrange(_ENDED, "-inf", f"({ended_s}", byscore=True))

    def due_webhook(self, delays_s: Sequence[float]) -> tuple[JobRow, int] | None:
        found = self._due(keys=[_DUE_HOOKS], args=list(delays_s))
        job = self.get(found[0]) if found else None
        return None if job is None else (job, found[1])

    def note_webhook(self, job_id: str) -> None:
        self._redis.zrem(_DUE_HOOKS, job_id)

    # --- parts --------------------------------------------------------------------------------------------

    def claim(self, jobs: Sequence[JobRow], num_parts: int) -> list[Claim]:
        by_id = {job.id: job for job in jobs}
        found = self._claim(keys=[_RUNNING], args=[LEASE_S, num_parts, *by_id])
        return [
            Claim(by_id[job_id], int(number), attempt, f"{number}-{secrets.token_hex(4)}")
            for job_id, number, attempt in found
        ]

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        names = [word for claim in claims for word in (claim.job.id, claim.number)]
        return [bool(is_held) for is_held in self._renew(args=[LEASE_S, *names])]

    def release(self, claim: Claim, *, counts: bool) -> None:
        is_open = self._redis.zadd(_key("free", claim.job.id), {str(claim.number): claim.number}, xx=True, ch=True)
        if is_open and not counts:  # else the job may be gone, and its keys are not made again
            self._redis.hincrby(_key("attempts", claim.job.id), str(claim.number), -1)

    def text_of(self, claim: Claim) -> str | None:
        text: str | None = self._redis.hget(_key("texts", claim.job.id), str(claim.number))
        return text

    def finish(self, claim: Claim, audio: PartAudio, num_characters: int) -> bool:
        made = f"{audio.end_pts_48k} {claim.file}"
        sums = {
            "parts_done": 1,
            "characters_done": num_characters,
            "audio_ms": audio.audio_ms,
            "truncated": int(audio.is_truncated),
        }
        words = [word for pair in sums.items() for word in pair]
        told = self._finish(args=[claim.job.id, claim.number, made, claim.job.parts, *words])
        return bool(told == made)

    def parts(self, job_id: str, part: int | None, of_input: int | None) -> list[DonePart | None]:
        with self._redis.pipeline() as asking:
            inputs, done = asking.hgetall(_key("inputs", job_id)).hgetall(_key("done", job_id)).execute()
        numbers = sorted(
            int(number)
            for number, its_input in inputs.items()
            if part in (None, int(number)) and of_input in (None, int(its_input))
        )
        return [_done(done.get(str(number))) for number in numbers]


def connected(settings: JobSettings) -> Redis:
    """It is asked for nothing yet. Raises GatewayError where its address cannot be used."""
    assert settings.queue is not None, "it is this ledger's"
    try:
        redis = Redis.from_url(
            settings.queue,
            password=settings.queue_password,
            decode_responses=True,
            protocol=2,  # 3 hides what a wrong password is answered
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),
        )
        redis.connection_pool.make_connection()  # it reads the address's options, and connects later
    except (ValueError, TypeError, RedisError) as error:
        raise GatewayError(f"jobs_queue cannot be used: {error}") from error
    return redis


def _key(name: str, of: str) -> str:
    return f"{_PREFIX}{name}:{of}"


def _kept(job: JobRow) -> dict[str, Any]:
    """The row; beside it stands what scripts have to know."""
    webhook = {} if job.webhook is None else {"webhook": job.webhook}
    return {"row": msgspec.json.encode(job), "owner": job.owner, **webhook}


def _row(told: dict[str, str], is_running: bool) -> JobRow | None:
    """As it was made, with what has changed since. None: Redis has lost it, or its beginning."""
    if "row" not in told:
        return None
    row = {**msgspec.json.decode(told.pop("row")), **told}
    return _begun(msgspec.convert(row, JobRow, strict=False), is_running)


def _begun(row: JobRow, is_running: bool) -> JobRow:
    return replace(row, state=State.RUNNING) if is_running else row


def _done(told: str | None) -> DonePart | None:
    if told is None:
        return None
    end_pts_48k, file = told.split()
    return DonePart(file, int(end_pts_48k))
