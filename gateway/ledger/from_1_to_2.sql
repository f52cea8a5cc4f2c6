-- Version 2 counts executions, knows which operation saved a file, and remembers files that have gone.

ALTER TABLE sessions ADD COLUMN closed_at REAL;

ALTER TABLE operations ADD COLUMN executions INTEGER NOT NULL DEFAULT 0;
-- Version 1 counted none; what ran or has been billed was handed over once.
UPDATE operations SET executions = 1 WHERE status IN ('running', 'succeeded', 'failed');

ALTER TABLE files ADD COLUMN seq_id INTEGER; -- filled from the operations' results, which only Python can read
ALTER TABLE files ADD COLUMN gone_at REAL;
ALTER TABLE files ADD COLUMN gone_by TEXT CHECK (gone_by IN ('request', 'retention'));
CREATE INDEX saved ON files (run_id, seq_id);
