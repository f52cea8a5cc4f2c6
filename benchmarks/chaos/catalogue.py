"""What can be done to a run: families of faults, and a seeded draw over (fault kind × operation kind × position)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from benchmarks.chaos.scenario import PASSING, Ending, Fault, Scenario, When

Counts = Mapping[str, int]
"""How many requests of each subject an undisturbed run makes."""

Faults = tuple[tuple[Fault, ...], Ending]
Family = Callable[[Random, Counts], Faults]

# The requests around the operations. A failure's own (cancel_run) are met by the hooks of other scenarios.
LIFE = ("create_session", "create_run", "get_artifact", "finish_run", "get_run", "close_session", "heartbeat")
AROUND = tuple(route for route in LIFE if route not in {"heartbeat", "get_run"})
WHENS: tuple[When, ...] = ("before", "after")


def _operation(random: Random, counts: Counts, prefix: str, *, last: float = 1.0) -> tuple[str, int]:
    """A subject with that prefix, and one of its places (of the first `last` share)."""
    subject = random.choice(sorted(subject for subject in counts if subject.startswith(prefix)))
    return subject, random.randint(1, max(1, int(counts[subject] * last)))


def _life(random: Random, counts: Counts, subjects: tuple[str, ...] = LIFE) -> tuple[str, int]:
    subject = random.choice(subjects)
    # How many beats there are depends on how fast the machine is; the first two are sure.
    return subject, random.randint(1, min(counts[subject], 2 if subject == "heartbeat" else counts[subject]))


def _passing(random: Random, subject: str, nth: int) -> Fault:
    action = random.choice(sorted(PASSING))
    return Fault(action, subject, nth, times=random.choice((1, 1, 2, 3)) if action[0].isdigit() else 1)


def passing_post(random: Random, counts: Counts) -> Faults:
    """A post is refused, lost, slow, or its answer is."""
    return (_passing(random, *_operation(random, counts, "post-")),), "hooked"


def passing_poll(random: Random, counts: Counts) -> Faults:
    """The same with the wait for a result."""
    return (_passing(random, *_operation(random, counts, "poll-")),), "hooked"


def passing_life(random: Random, counts: Counts) -> Faults:
    """The same with everything else."""
    return (_passing(random, *_life(random, counts)),), "hooked"


def _struck(action: str, prefix: str) -> Family:
    def family(random: Random, counts: Counts) -> Faults:
        return (Fault(action, *_operation(random, counts, prefix), when=random.choice(WHENS)),), "hooked"

    return family


def kill_life(random: Random, counts: Counts) -> Faults:
    """The flow's process is killed around a request of its life cycle."""
    return (Fault("kill", *_life(random, counts, AROUND), when=random.choice(WHENS)),), "hooked"


def kill_moment(random: Random, counts: Counts) -> Faults:
    """The flow's process is killed between two requests: a block done and not persisted, persisted and not adopted."""
    subject = random.choice(("outcome", "adopt", "summary"))
    nth = 1 if subject == "summary" else random.randint(1, counts["post-save_state"])
    return (Fault("kill", subject, nth, when=random.choice(WHENS)),), "hooked"


def crash(random: Random, counts: Counts) -> Faults:
    """The gateway ends before or after it executes an operation."""
    return (Fault("crash", *_operation(random, counts, "post-"), when=random.choice(WHENS)),), "hooked"


def _elsewhere(action: str) -> Family:
    """Gateway or engine are killed at a place of the flow's; SIGTERM and Cancel reach the flow there."""

    def family(random: Random, counts: Counts) -> Faults:
        prefix = random.choice(("post-", "poll-"))
        return (Fault(action, *_operation(random, counts, prefix), when=random.choice(WHENS)),), "hooked"

    return family


def several(random: Random, counts: Counts) -> Faults:
    """Two passing faults and a kill; or a kill, and another in the second attempt."""
    subject, nth = _operation(random, counts, "post-", last=0.5)
    first = Fault("kill", subject, nth, when=random.choice(WHENS))
    again = random.choice(
        ("post-save_state", "post-optim_step", "post-forward_backward", "create_run", "create_session")
    )
    second = Fault(random.choice(("kill", "kill", "drop_answer", "reset", "crash")), again, attempt=2)
    if second.action == "crash" and second.kind is None:
        second = Fault("503", again, attempt=2, times=2)
    early = _passing(random, "create_session", 1)
    return (early, first, second), "hooked"


def _retried(ending: Ending) -> Family:
    """A kill in the first half, and a Retry that comes in its own way."""

    def family(random: Random, counts: Counts) -> Faults:
        subject = random.choice(("post-optim_step", "post-forward_backward", "poll-save_state"))
        nth = 2 if ending == "truncated" else random.randint(1, 2)
        return (Fault("kill", subject, min(nth, counts[subject]), when=random.choice(WHENS)),), ending

    return family


def finished(random: Random, counts: Counts) -> Faults:
    """A run that has got over a passing fault, completed, and is retried for nothing."""
    return (_passing(random, *_operation(random, counts, "post-")),), "finished"


FAMILIES: tuple[tuple[str, Family], ...] = (
    ("passing post", passing_post),
    ("kill post", _struck("kill", "post-")),
    ("passing poll", passing_poll),
    ("kill poll", _struck("kill", "poll-")),
    ("passing life", passing_life),
    ("kill life", kill_life),
    ("kill moment", kill_moment),
    ("crash", crash),
    ("several", several),
    ("sigterm", _elsewhere("sigterm")),
    ("cancel", _elsewhere("cancel")),
    ("engine kill", _elsewhere("engine_kill")),
    ("unwatched", _retried("unwatched")),
    ("at once", _retried("at_once")),
    ("twice", _retried("twice")),
    ("finished", finished),
    ("gateway kill", _elsewhere("gateway_kill")),
    ("reaped", _retried("reaped")),
    ("truncated", _retried("truncated")),
)


def draw(number: int, seed: int, counts: Mapping[tuple[str, int], Counts]) -> Iterator[Scenario]:
    """`number` scenarios, none twice, each family as often as the others; `counts` by algorithm and `save_every`."""
    random, drawn = Random(seed), set[Scenario]()
    shapes = sorted(counts)
    while len(drawn) < number:
        for place in range(number - len(drawn)):
            _, family = FAMILIES[place % len(FAMILIES)]
            algorithm, save_every = random.choice(shapes)
            faults, ending = family(random, counts[algorithm, save_every])
            scenario = Scenario(algorithm, 1 if ending == "truncated" else save_every, faults, ending)
            if scenario not in drawn and (algorithm, scenario.save_every) in counts:
                drawn.add(scenario)
                yield scenario
