-- The gateway's memory. Everything a client was ever told can be answered from here after a SIGKILL.
-- Times are Unix seconds; labels, specs and errors are JSON; payloads and results are zstd-compressed JSON.

CREATE TABLE sessions (
    session_id   TEXT PRIMARY KEY,
    create_key   TEXT NOT NULL UNIQUE,
    digest       TEXT NOT NULL,           -- of the body that created it: another body under the same key is refused
    labels       TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('open', 'closed')),
    reason       TEXT,
    created_at   REAL NOT NULL,
    heartbeat_at REAL NOT NULL
) STRICT;

CREATE TABLE runs (
    run_id      TEXT PRIMARY KEY,
    session_id  TEXT NOT NULL REFERENCES sessions,
    create_key  TEXT NOT NULL,
    digest      TEXT NOT NULL,
    spec        TEXT NOT NULL,            -- the body that created it
    status      TEXT NOT NULL
                CHECK (status IN ('active', 'finishing', 'finished', 'cancelling', 'cancelled', 'failed')),
    reason      TEXT,                     -- begins with a code: run_lost, operation_failed, expired …
    next_seq_id INTEGER NOT NULL DEFAULT 0, -- the lowest seq_id not accepted yet
    created_at  REAL NOT NULL,
    UNIQUE (session_id, create_key)
) STRICT;

CREATE TABLE operations (
    run_id         TEXT NOT NULL REFERENCES runs,
    seq_id         INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    sampler_id     TEXT,                  -- the snapshot read, or the one made by save_weights_for_sampler
    digest         TEXT NOT NULL,         -- of sampler, kind and payload: the same seq_id with another digest is refused
    payload        BLOB,                  -- only until the operation has ended
    status         TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    result         BLOB,
    error          TEXT,
    prefill_tokens INTEGER NOT NULL DEFAULT 0,
    sampled_tokens INTEGER NOT NULL DEFAULT 0,
    trained_tokens INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, seq_id)
) STRICT;

CREATE UNIQUE INDEX snapshots ON operations (run_id, sampler_id) WHERE kind = 'save_weights_for_sampler';

CREATE TABLE billing (
    run_id         TEXT NOT NULL REFERENCES runs,
    kind           TEXT NOT NULL,
    operations     INTEGER NOT NULL,
    prefill_tokens INTEGER NOT NULL,
    sampled_tokens INTEGER NOT NULL,
    trained_tokens INTEGER NOT NULL,
    PRIMARY KEY (run_id, kind)
) STRICT;

-- What outlives runs and sessions: the bytes lie in states/ and artifacts/ under the data directory.
CREATE TABLE files (
    file_id    TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('state', 'artifact')),
    run_id     TEXT NOT NULL,
    model      TEXT NOT NULL,
    rank       INTEGER NOT NULL,
    alpha      REAL NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
