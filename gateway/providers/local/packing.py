"""Sequences laid out as prefix trees, so that a token that several sequences share is computed once.

Sorted lexicographically, sequences are the leaves of a tree in depth-first order: each shares its longest common prefix
with its predecessor. In that order a token's descendants are a contiguous range, and "i may look at j" is simply
"j ≤ i and i lies before the end of j's range".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class _Tree:
    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """For each node, one past its last descendant; −1 while its branch is still open."""
    paths: dict[int, list[int]] = field(default_factory=dict)
    """By sequence number, the node of each of its tokens."""
    last_path: list[int] = field(default_factory=list)

    def add(self, number: int, sequence: Sequence[int], shared: int) -> None:
        """Append the tokens beyond the prefix that is shared with the sequence added before."""
        self._close(self.last_path[shared:])
        start = len(self.tokens)
        self.tokens.extend(sequence[shared:])
        self.positions.extend(range(shared, len(sequence)))
        self.ends.extend([-1] * (len(sequence) - shared))
        self.last_path = self.last_path[:shared] + list(range(start, len(self.tokens)))
        self.paths[number] = self.last_path

    def finish(self) -> None:
        self._close(self.last_path)

    def _close(self, nodes: list[int]) -> None:
        for node in nodes:
            self.ends[node] = len(self.tokens)


@dataclass(frozen=True)
class Pack:
    """Trees one after another: what one pass through the network computes.

    `tokens`, `positions` [N] over all nodes; `lengths` nodes by tree; `masks` by tree an additive attention mask
    [1, 1, n, n], or None where the tree is a plain sequence; `paths` maps a sequence's number to its nodes [T].
    """

    tokens: Tensor
    positions: Tensor
    lengths: list[int]
    masks: list[Tensor | None]
    paths: dict[int, Tensor]


def pack_sequences(sequences: Sequence[Sequence[int]], *, max_tokens: int, break_even: float) -> list[Pack]:
    """Lay out `sequences` in as few packs of at most `max_tokens` nodes as order allows.

    A sequence longer than `max_tokens` gets a pack of its own. `break_even` is the tree length at which attention
    costs as much as the linears do: sharing a prefix saves linears and lengthens attention, and is done where it pays.
    """
    trees = _grow_trees(sequences, max_tokens=max_tokens, break_even=break_even)
    packs: list[list[_Tree]] = []
    room = 0
    for tree in trees:
        if len(tree.tokens) > room or not packs:
            packs.append([])
            room = max_tokens
        packs[-1].append(tree)
        room -= len(tree.tokens)
    return [_join(trees_of_pack) for trees_of_pack in packs]


def _grow_trees(sequences: Sequence[Sequence[int]], *, max_tokens: int, break_even: float) -> list[_Tree]:
    trees: list[_Tree] = []
    previous: Sequence[int] = ()
    for number in sorted(range(len(sequences)), key=lambda index: list(sequences[index])):
        sequence = sequences[number]
        shared = _common_prefix(previous, sequence) if trees else 0
        if not trees or not _joining_pays(len(trees[-1].tokens), len(sequence), shared, max_tokens, break_even):
            trees.append(_Tree())
            shared = 0
        trees[-1].add(number, sequence, shared)
        previous = sequence
    for tree in trees:
        tree.finish()
    return trees


def _joining_pays(tree: int, sequence: int, shared: int, max_tokens: int, break_even: float) -> bool:
    joined = tree + sequence - shared
    if joined > max_tokens:
        return False
    longer_attention = joined**2 - tree**2 - sequence**2
    return shared * break_even > longer_attention


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def _join(trees: list[_Tree]) -> Pack:
    paths: dict[int, Tensor] = {}
    start = 0
    for tree in trees:
        paths |= {number: torch.tensor(path) + start for number, path in tree.paths.items()}
        start += len(tree.tokens)
    return Pack(
        tokens=torch.tensor([token for tree in trees for token in tree.tokens]),
        positions=torch.tensor([position for tree in trees for position in tree.positions]),
        lengths=[len(tree.tokens) for tree in trees],
        masks=[_mask(tree) for tree in trees],
        paths=paths,
    )


def _mask(tree: _Tree) -> Tensor | None:
    if len(tree.tokens) == tree.positions[-1] + 1:  # a single chain: plain causal attention
        return None
    nodes = torch.arange(len(tree.tokens))
    ends = torch.tensor(tree.ends)
    ancestor = (nodes[None, :] <= nodes[:, None]) & (nodes[:, None] < ends[None, :])
    return torch.zeros(ancestor.shape).masked_fill_(~ancestor, float("-inf"))[None, None]
