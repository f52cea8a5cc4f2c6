"""What a scenario is, and the id that names and reproduces it: `grpo:2:kill.post-optim_step.2.after+503.create_run@2`.

Algorithm, `save_every`, faults, and (where it is not the usual one) how Retry comes. A fault is

    action[*times].subject[.nth][.after][@attempt]

and its subject one of

    post-<kind>   the request that posts an operation        poll-<kind>   the wait for its result
    <route>       of `whitney.routes.ROUTES`                 outcome, adopt, summary   a moment in the flow's process
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from whitney.routes import ROUTES
from whitney.types import RUN_KINDS, SAMPLER_KINDS

When = Literal["before", "after"]

# What the client is expected to get over by itself: none of these may cost an attempt.
PASSING: dict[str, dict[str, Any]] = {
    "drop_answer": {"action": "drop_answer"},
    "reset": {"action": "reset"},
    "slow_answer": {"action": "slow_answer", "delay_s": 0.4},
    "429": {"action": "status", "status": 429},
    "429-retry-after": {"action": "status", "status": 429, "retry_after_s": 0.3},
    "503": {"action": "status", "status": 503},
    "503-retry-after": {"action": "status", "status": 503, "retry_after_s": 0.3},
}
CRASH = "crash"
"""The gateway ends itself before, or after, it executes an operation."""

Trigger = Literal["kill", "sigterm", "cancel", "gateway_kill", "engine_kill"]
"""What happens to a process when the flow's own process has come to an exact place."""

TRIGGERS: tuple[str, ...] = get_args(Trigger)

Ending = Literal["hooked", "unwatched", "reaped", "at_once", "twice", "finished", "truncated"]
"""How Retry comes.

hooked: when the runner has run the hook. at_once: while that hook is still closing. twice: a second time, while the
retried attempt is at work. unwatched: no runner was there to run a hook. reaped: neither, and `whitney reap`'s
life-cycle call comes first. finished: on a run that has ended well. truncated: when the newest saved state has lost
half of its bytes.
"""
ENDINGS: tuple[str, ...] = get_args(Ending)

MOMENTS = ("outcome", "adopt", "summary", "stages")
"""A block is done, and not yet persisted; persisted, and not yet in the run folder; all is done but the summary; a
pipeline's stage is done, and not yet on the pipeline's record."""

_FAULT = re.compile(
    r"(?P<action>[\w-]+?)(\*(?P<times>\d+))?\.(?P<subject>[\w-]+)(\.(?P<nth>\d+))?(\.(?P<when>after))?(@(?P<attempt>\d+))?"
)

_SCENARIO = re.compile(
    rf"(?P<algorithm>\w+):(?P<save_every>[1-9]\d*):(?P<faults>[^:]*)(:(?P<ending>{'|'.join(ENDINGS)}))?"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what happens, at the `nth` of which subject, in which attempt."""

    action: str
    subject: str
    nth: int = 1
    when: When = "before"
    attempt: int = 1
    times: int = 1

    def __str__(self) -> str:
        times = f"*{self.times}" if self.times > 1 else ""
        after = ".after" if self.when == "after" else ""
        attempt = f"@{self.attempt}" if self.attempt > 1 else ""
        return f"{self.action}{times}.{self.subject}.{self.nth}{after}{attempt}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault of an id.

        Raises:
            ValueError: it is none.
        """
        found = _FAULT.fullmatch(text)
        known = (*PASSING, CRASH, *TRIGGERS)
        if found is None or found["action"] not in known:
            raise ValueError(
                f"{text!r} is no fault: action.subject[.nth][.after][@attempt], action of {', '.join(known)}"
            )
        subject, kinds = found["subject"], (*RUN_KINDS, *SAMPLER_KINDS)
        posts, polls = ([f"{head}-{kind}" for kind in kinds] for head in ("post", "poll"))
        places = posts if found["action"] == CRASH else [*posts, *polls, *ROUTES]
        if found["action"] in TRIGGERS:
            places += MOMENTS
        if subject not in places:
            raise ValueError(f"{text!r} has no place: {subject!r} is none of {', '.join(places)}")
        return cls(
            found["action"],
            subject,
            int(found["nth"] or 1),
            "after" if found["when"] else "before",
            int(found["attempt"] or 1),
            int(found["times"] or 1),
        )

    @property
    def passes(self) -> bool:
        """Whether the client gets over it without losing the attempt."""
        return self.action in PASSING

    @property
    def in_gateway(self) -> bool:
        """Whether the gateway's own fault script does it."""
        return self.passes or self.action == CRASH

    @property
    def kind(self) -> str | None:
        """The operation kind it is about."""
        head, _, kind = self.subject.partition("-")
        return kind if head in {"post", "poll"} else None

    def scripted(self, seq_id: int | None) -> dict[str, Any]:
        """A line of the gateway's fault script; `seq_id` tells which operation a poll is for."""
        if self.action == CRASH:
            return {"action": CRASH, "kind": self.kind, "nth": self.nth, "when": self.when}
        line = PASSING[self.action] | {"times": self.times}
        if self.subject.startswith("poll-"):
            return line | {"route": "get_operation", "seq_id": seq_id}
        if self.kind is not None:
            route = "sampler_operation" if self.kind in SAMPLER_KINDS else "run_operation"
            return line | {"route": route, "kind": self.kind, "nth": self.nth}
        return line | {"route": self.subject, "nth": self.nth}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A configuration and what is done to it."""

    algorithm: str
    save_every: int
    faults: tuple[Fault, ...] = ()
    ending: Ending = "hooked"

    def __str__(self) -> str:
        parts = [self.algorithm, str(self.save_every), "+".join(map(str, self.faults))]
        return ":".join(parts if self.ending == "hooked" else [*parts, self.ending])

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """The scenario of an id.

        Raises:
            ValueError: it is none.
        """
        found = _SCENARIO.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no scenario: algorithm:save_every:fault+fault[:{'|'.join(ENDINGS)}]")
        faults = tuple(Fault.parse(fault) for fault in found["faults"].split("+") if fault)
        return cls(found["algorithm"], int(found["save_every"]), faults, cast("Ending", found["ending"] or "hooked"))

    @property
    def undisturbed(self) -> Scenario:
        """The same configuration, left in peace: what the others are compared with."""
        return replace(self, faults=(), ending="hooked")

    @property
    def lethal(self) -> int:
        """How many of its faults may end an attempt."""
        return sum(not fault.passes for fault in self.faults)
