"""What can be done to a run: families of faults, and a seeded draw over (fault kind × operation kind × position)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from benchmarks.chaos.configs import PIPELINE, STAGES
from benchmarks.chaos.scenario import PASSING, Ending, Fault, Scenario, When

Counts = Mapping[str, int]
"""How many requests of each subject an undisturbed run makes."""

Faults = tuple[tuple[Fault, ...], Ending]
Family = Callable[[Random, Counts], Faults]

# The requests around the operations, and what of them a healthy run makes just once or a sure number of times.
LIFE = ("create_session", "create_run", "get_artifact", "finish_run", "close_session")
AROUND = (*LIFE, "capabilities", "list_sessions", "get_run", "heartbeat")
WHENS: tuple[When, ...] = ("before", "after")


def _operation(random: Random, counts: Counts, prefixes: tuple[str, ...]) -> tuple[str, int]:
    """A subject with such a prefix, and one of its places."""
    subject = random.choice(sorted(subject for subject in counts if subject.startswith(prefixes)))
    return subject, random.randint(1, counts[subject])


def _first_half(random: Random, counts: Counts) -> tuple[str, int]:
    """A post that is made in every block, at a place in the first half of them."""
    posts = [subject for subject in counts if subject.startswith("post-") and counts[subject] > 1]
    subject = random.choice(sorted(posts))
    return subject, random.randint(1, counts[subject] // 2)


def _around(random: Random, counts: Counts) -> tuple[str, int]:
    subject = random.choice(AROUND)
    # How many beats and looks at a run there are depends on how fast the machine is; the first is sure.
    return subject, random.randint(1, counts[subject]) if subject in LIFE else 1


def _anywhere(random: Random, counts: Counts) -> tuple[str, int]:
    return _operation(random, counts, random.choice((("post-",), ("poll-",), LIFE)))


def _passing(random: Random, subject: str, nth: int) -> Fault:
    return Fault(random.choice(sorted(PASSING)), subject, nth, times=random.choice((1, 1, 2, 3)))


def passing(*prefixes: str) -> Family:
    """An operation's post, or the wait for it, is refused, lost, slow, or its answer is."""
    return lambda random, counts: ((_passing(random, *_operation(random, counts, prefixes)),), "hooked")


def passing_around(random: Random, counts: Counts) -> Faults:
    """The same with everything else."""
    return (_passing(random, *_around(random, counts)),), "hooked"


def struck(action: str, *prefixes: str) -> Family:
    """The flow's process, the gateway or its engine is killed at a place of the flow's; or the flow is told to end."""

    def family(random: Random, counts: Counts) -> Faults:
        subject, nth = _operation(random, counts, prefixes) if prefixes else _anywhere(random, counts)
        return (Fault(action, subject, nth, when=random.choice(WHENS)),), "hooked"

    return family


def kill_moment(random: Random, counts: Counts) -> Faults:
    """The flow's process is killed between two requests: a block done and not persisted, persisted and not adopted."""
    subject = random.choice(("outcome", "adopt", "summary"))
    nth = 1 if subject == "summary" else random.randint(1, counts["post-save_state"])
    return (Fault("kill", subject, nth, when=random.choice(WHENS)),), "hooked"


def kill_handing_on(random: Random, counts: Counts) -> Faults:
    """The process of a pipeline is killed between two stages, or behind the last one."""
    subject, last = random.choice((("stages", len(STAGES)), ("summary", len(STAGES) + 1)))
    return (Fault("kill", subject, random.randint(1, last), when=random.choice(WHENS)),), "hooked"


def kill_closing(random: Random, counts: Counts) -> Faults:
    """The flow is told to end, and killed while it is closing its session."""
    told = random.choice(("sigterm", "cancel"))
    subject, nth = _operation(random, counts, ("post-", "poll-"))
    closing = Fault("kill", random.choice(("cancel_run", "close_session")), when=random.choice(WHENS))
    return (Fault(told, subject, nth, when=random.choice(WHENS)), closing), "hooked"


def several(random: Random, counts: Counts) -> Faults:
    """A passing fault, a kill, and another fault in the second attempt."""
    early = _passing(random, random.choice(("create_session", "create_run")), 1)
    subject, nth = _first_half(random, counts)
    first = Fault("kill", subject, nth, when=random.choice(WHENS))
    again = random.choice((*SECOND, "list_sessions", "create_session", "create_run"))
    if again in SECOND and random.random() < 0.25:
        return (early, first, Fault("crash", again, when=random.choice(WHENS), attempt=2)), "hooked"
    action = random.choice(("kill", "kill", "engine_kill", "drop_answer", "reset"))
    return (early, first, Fault(action, again, attempt=2)), "hooked"


# What a second attempt is sure to do if the first was killed in its first half.
SECOND = ("post-save_state", "post-optim_step", "post-forward_backward")


def retried(ending: Ending) -> Family:
    """A kill in the first half, and a Retry that comes in its own way."""

    def family(random: Random, counts: Counts) -> Faults:
        subject = random.choice(("post-optim_step", "post-forward_backward", "poll-save_state"))
        nth = 2 if ending == "truncated" else random.randint(1, 2)
        return (Fault("kill", subject, min(nth, counts[subject]), when=random.choice(WHENS)),), ending

    return family


def finished(random: Random, counts: Counts) -> Faults:
    """A run that has got over a passing fault, completed, and is retried for nothing."""
    return (_passing(random, *_operation(random, counts, ("post-",))),), "finished"


FAMILIES: tuple[Family, ...] = (
    passing("post-"),
    struck("kill", "post-"),
    passing("poll-"),
    struck("kill", "poll-"),
    passing_around,
    struck("kill", *LIFE),
    kill_moment,
    struck("sigterm"),
    struck("cancel"),
    struck("crash", "post-"),
    several,
    struck("engine_kill"),
    retried("unwatched"),
    retried("at_once"),
    retried("twice"),
    kill_closing,
    finished,
    struck("gateway_kill"),
    retried("reaped"),
    retried("truncated"),
)


OF_PIPELINES: tuple[Family, ...] = (
    kill_handing_on,
    # A state that was lost is made good within its stage, as elsewhere.
    *(family for family in FAMILIES if family is not FAMILIES[-1]),
)


def draw(number: int, seed: int, counts: Mapping[tuple[str, int], Counts]) -> list[Scenario]:
    """`number` scenarios, none twice, each family as often as the others; `counts` by algorithm and `save_every`."""
    random, drawn = Random(seed), dict[Scenario, None]()
    shapes = sorted(counts)
    place = 0
    while len(drawn) < number:
        algorithm, save_every = random.choice(shapes)
        families = OF_PIPELINES if algorithm == PIPELINE else FAMILIES
        faults, ending = families[place % len(families)](random, counts[algorithm, save_every])
        # A state that is lost falls back on the one before, so there must be several.
        scenario = Scenario(algorithm, 1 if ending == "truncated" else save_every, faults, ending)
        if scenario not in drawn:
            drawn[scenario] = None
            place += 1
    return list(drawn)
