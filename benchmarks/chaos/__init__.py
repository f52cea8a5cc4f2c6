"""A seeded campaign of faults against real flows, and the proof that none of them loses, leaks or pays twice.

`python -m benchmarks.chaos --scenarios N --seed S`. Every scenario is a flow run of the tiny model on a real Prefect
server and a real gateway process: faults, Retry as often as it takes, then the verdict, from the gateway's ledger, the
run folder and a journal of every request, against a run of the same configuration that nothing disturbed.
"""
