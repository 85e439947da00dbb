"""The inner loops of OBOL: trees, expected improvement and lookahead over arrays.

They stay in one file because numba renews a cached function when its own file changes, and not when a file that it
calls changes. Import this module inside functions: it loads numba.

Candidates and trials are rows of small integers, the levels of their columns. A set of candidates is a row of 64-bit
words, so that a split of a node is one AND a word. The runs that lookahead imagines are appended to the trials. A tree
whose bag holds none of the newest imagined runs is the same tree as before, and is grown once only.
"""

from __future__ import annotations

import math

import numpy as np

from tradewind.compiling import COMPILED, fast, inlined
from tradewind.searcher.obol.arrays import Bags, Bytes, Field, Floats, Ints, Room, Rules, Trials, Words

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_SAME = 1e-9
"""Two figures that differ by this share are equal: which one is taken is decided by order."""
_AGREE = 1e-10
"""Variance over trees, in units of the trials' variance, below which the trees agree."""

_NODES = np.array([-math.sqrt(3.0), 0.0, math.sqrt(3.0)])
_WEIGHTS = np.array([1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0])
# Gauss-Hermite with three points for a standard normal: sqrt(2) times the roots 0, ±sqrt(3/2), and weights that add
# up to one.

_ONE, _ZERO, _SHIFT = np.uint64(1), np.uint64(0), np.uint64(58)
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    _PLACES[(((1 << _bit) * int(_DE_BRUIJN)) & (2**64 - 1)) >> 58] = _bit


# ---------------------------------------------------------------------- trees


@inlined
def _add_bits(sets: Words, row: int, value: float, sums: Floats, squares: Floats) -> None:
    """Add a leaf's value, and its square, for each of its candidates."""
    square = value * value
    for k in range(sets.shape[1]):
        word = sets[row, k]
        while word != _ZERO:
            lowest = word & (~word + _ONE)
            j = 64 * k + _PLACES[(lowest * _DE_BRUIJN) >> _SHIFT]
            sums[j] += value
            squares[j] += square
            word ^= lowest


def _add_array(sets: Words, row: int, value: float, sums: Floats, squares: Floats) -> None:
    """As `_add_bits`, for when nothing is compiled."""
    chosen = np.unpackbits(sets[row].view(np.uint8), bitorder="little")[: len(sums)].view(np.bool_)
    sums[chosen] += value
    squares[chosen] += value * value


_add = _add_bits if COMPILED else _add_array


@inlined
def _split(
    orders: Bytes, node: int, tries: int, spread: float, weight: float, total: float, start: int, end: int,
    bag: Floats, product: Floats, index: Ints, codes: Bytes, heap: Floats, heaps: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """The column that splits a node best, and the levels on both sides of the split; -1 where none gains."""
    gain, feature, below, above = _SAME * spread, -1, 0, 0
    for a in range(orders.shape[1]):
        if a >= tries and feature >= 0:
            break
        f = orders[node, a]
        low, high = 255, 0
        for p in range(start, end):
            i = index[p]
            c = codes[i, f]
            heap[c] += bag[i]
            heaps[c] += product[i]
            low, high = min(low, c), max(high, c)
        left, part, latest = heap[low], heaps[low], low
        heap[low], heaps[low] = 0.0, 0.0
        for c in range(low + 1, high + 1):
            if heap[c] > 0.0:
                # (part / left - rest / right)² left right / weight, with one division.
                right = weight - left
                apart = part * right - (total - part) * left
                found = apart * apart / (left * right * weight)
                if found > gain:
                    gain, feature, below, above = found * (1.0 + _SAME), f, latest, c
                left += heap[c]
                part += heaps[c]
                latest = c
                heap[c], heaps[c] = 0.0, 0.0
    return feature, below, above


@fast
def _grow(
    bag: Floats, orders: Bytes, tries: int, size: int, codes: Bytes, y: Floats,
    everyone: Words, values: Floats, masks: Words, product: Floats,
    index: Ints, stack: Ints, sets: Words, heap: Floats, heaps: Floats, sums: Floats, squares: Floats,
) -> None:  # fmt: skip
    """Grow one random tree and add its prediction, and the square, for every candidate."""
    count, weight, total, square = 0, 0.0, 0.0, 0.0
    for i in range(size):
        if bag[i] > 0.0:
            index[count] = i
            count += 1
            product[i] = bag[i] * y[i]
            weight += bag[i]
            total += product[i]
            square += product[i] * y[i]
    least = 1e-3 * (square - total * total / weight) / weight
    stack[0, 0], stack[0, 1] = 0, count
    for k in range(sets.shape[1]):
        sets[0, k] = everyone[k]
    top, node = 1, 0
    while top > 0:
        top -= 1
        start, end = stack[top, 0], stack[top, 1]
        weight, total, square = 0.0, 0.0, 0.0
        for p in range(start, end):
            i = index[p]
            weight += bag[i]
            total += product[i]
            square += product[i] * y[i]
        spread = square - total * total / weight
        feature, below, above = -1, 0, 0
        if weight >= 2.0 and spread > 1e-12 and spread >= least * weight:
            feature, below, above = _split(
                orders, node, tries, spread, weight, total, start, end, bag, product, index, codes, heap, heaps
            )
            node += 1
        if feature < 0:
            _add(sets, top, total / weight, sums, squares)
            continue
        # A level in the middle goes to the right, as one that equals the threshold does.
        middle = 0.5 * (values[feature, below] + values[feature, above]) - _SAME
        cut = below
        while cut + 1 < above and values[feature, cut + 1] < middle:
            cut += 1
        p = start
        for q in range(start, end):
            if codes[index[q], feature] <= cut:
                index[p], index[q] = index[q], index[p]
                p += 1
        for k in range(sets.shape[1]):
            mask = masks[feature, cut, k]
            sets[top + 1, k] = sets[top, k] & mask
            sets[top, k] = sets[top, k] & ~mask
        stack[top, 0], stack[top, 1] = p, end
        stack[top + 1, 0], stack[top + 1, 1] = start, p
        top += 2


@fast
def renew(k: int, version: Ints, field: Field, bags: Bags, trials: Trials, room: Room) -> None:
    """Bring the sums for k imagined runs up to date: only trees whose bags hold a changed run are grown.

    ``version[g]`` says which values the first g imagined runs have.
    """
    for g in range(k + 1):
        if room.stamp[k, g] == version[g]:
            continue
        room.stamp[k, g] = version[g]
        sums, squares = room.sums[k, g], room.squares[k, g]
        if g > 0:
            sums[:] = room.sums[k, g - 1]
            squares[:] = room.squares[k, g - 1]
        for t in range(bags.weights.shape[1]):
            if bags.newest[k, t] == g - 1:
                _grow(
                    bags.weights[k, t], bags.orders[k, t], bags.tries, trials.size + k, trials.codes, trials.y,
                    field.everyone, field.values, field.masks, room.product,
                    room.places, room.stack, room.sets, room.weights, room.totals, sums, squares,
                )  # fmt: skip


# ---------------------------------------------------------------------- what a candidate is worth


@fast
def _below(z: float) -> float:
    """P(Z ≤ z) of a standard normal."""
    return 0.5 * math.erfc(-z * _ROOT_HALF)


@fast
def moments(total: float, square: float, trees: int, shift: float, scale: float, rules: Rules) -> tuple[float, float]:
    """Mean and standard deviation of a candidate over the trees."""
    mean = total / trees
    variance = (square - total * mean) / (trees - 1) if trees > 1 else 0.0
    mean = shift + scale * mean
    if variance > _AGREE:
        return mean, scale * math.sqrt(variance)
    if rules.log:
        return mean, math.log1p(rules.agreement)
    return mean, rules.agreement * abs(mean)


@fast
def worth(mean: float, sd: float, best: float, limit: float, log: bool) -> float:
    """Constrained expected improvement: EI times the probability of meeting the deadline.

    On the logarithm, EI is that of a log-normal cost and ``limit`` is a logarithm too; ``best`` never is.
    """
    if sd <= 0.0:
        value = math.exp(min(mean, 700.0)) if log else mean
        return max(best - value, 0.0) if mean <= limit else 0.0
    share = _below((limit - mean) / sd) if limit < math.inf else 1.0
    if log:
        z = (math.log(best) - mean) / sd if best > 0.0 else -math.inf
        if z == -math.inf:
            return 0.0
        inside = best * _below(z) - math.exp(min(mean + 0.5 * sd * sd, 700.0)) * _below(z - sd)
        return max(inside, 0.0) * share
    z = (best - mean) / sd
    return max((best - mean) * _below(z) + sd * _DENSITY * math.exp(-0.5 * z * z), 0.0) * share


@fast
def amount(mean: float, sd: float, deviations: float, log: bool) -> float:
    """The objective's mean (``deviations`` negative), or its quantile so many standard deviations up."""
    if log:
        exponent = mean + (0.5 * sd * sd if deviations < 0.0 else deviations * sd)
        return math.exp(min(exponent, 700.0))
    return mean if deviations < 0.0 else mean + deviations * sd


@fast
def _stand_in(worst: float, widest: float, log: bool) -> float:
    """What is to be beaten while nothing is feasible: the largest objective and three standard deviations."""
    return worst * math.exp(min(3.0 * widest, 700.0)) if log else worst + 3.0 * widest


@fast
def _choose(
    k: int, trees: int, trials: Trials, field: Field, rules: Rules, free: Ints, room: Room,
    money: float, machines: int, best: float, worst: float,
) -> tuple[int, float]:  # fmt: skip
    """The best candidate that the money pays, and its constrained expected improvement; -1 where the money pays none.

    EI ≤ max(best − μ, 0) + 0.3990σ says which candidates need no look; for a logarithm 1 − x ≤ −ln x carries the
    bound over. The choice is the one that evaluating all would make.
    """
    sums, squares, mean, sd, bound = room.sums[k, k], room.squares[k, k], room.mean, room.sd, room.bound
    widest = 0.0
    for p in range(len(free)):
        j = free[p]
        bound[p] = -1.0
        if room.used[j]:
            continue
        mean[p], sd[p] = moments(sums[j], squares[j], trees, trials.shift, trials.scale, rules)
        widest = max(widest, sd[p])
        dear = field.rate[j] * amount(mean[p], sd[p], rules.quantile, rules.log) + field.fixed[j]
        if machines != field.machines[j]:
            dear += field.switch[j]
        if dear <= money:
            bound[p] = 0.0
    if best == math.inf:
        best = _stand_in(worst, widest, rules.log)
    mark = math.log(best) if rules.log and best > 0.0 else best
    first, most = -1, -1.0
    for p in range(len(free)):
        if bound[p] >= 0.0:
            bound[p] = max(mark - mean[p], 0.0) + 0.3990 * sd[p]
            if rules.log:
                bound[p] *= best
            bound[p] *= field.chance[free[p]]
            if bound[p] > most:
                first, most = p, bound[p]
    if first < 0:
        return -1, 0.0
    chosen = first
    top = worth(mean[first], sd[first], best, field.limit[free[first]], rules.log) * field.chance[free[first]]
    for p in range(len(free)):
        if bound[p] >= top * (1.0 - _SAME) and p != first:
            value = worth(mean[p], sd[p], best, field.limit[free[p]], rules.log) * field.chance[free[p]]
            if value > top * (1.0 + _SAME) or (value >= top * (1.0 - _SAME) and p < chosen):
                chosen, top = p, value
    return chosen, top


# ---------------------------------------------------------------------- lookahead


@fast
def judge(field: Field, trees: int, trials: Trials, rules: Rules, free: Ints, room: Room) -> tuple[Floats, float]:
    """What the sums of `renew` for no imagined run say of the candidates that may be run.

    Returns:
        Mean, standard deviation, constrained expected improvement, expected USD and the quantile of the USD, as rows
        of shape (5, len(free)); and the objective that was to be beaten.
    """
    found = np.empty((5, len(free)))
    widest = 0.0
    for p in range(len(free)):
        j = free[p]
        mean, sd = moments(room.sums[0, 0, j], room.squares[0, 0, j], trees, trials.shift, trials.scale, rules)
        found[0, p], found[1, p] = mean, sd
        widest = max(widest, sd)
    best = trials.best
    if best == math.inf:
        best = _stand_in(trials.worst, widest, rules.log)
    for p in range(len(free)):
        j = free[p]
        mean, sd = found[0, p], found[1, p]
        besides = field.fixed[j] + (0.0 if rules.machines == field.machines[j] else field.switch[j])
        found[2, p] = worth(mean, sd, best, field.limit[j], rules.log) * field.chance[j]
        found[3, p] = field.rate[j] * amount(mean, sd, -1.0, rules.log) + besides
        found[4, p] = field.rate[j] * amount(mean, sd, rules.quantile, rules.log) + besides
    return found, best


@fast
def look_ahead(
    field: Field, bags: Bags, trials: Trials, rules: Rules, free: Ints, room: Room,
    roots: Ints, first: Floats, found: Floats,
) -> None:  # fmt: skip
    """Utility and cost of the paths that begin at some candidates: algorithm 3 of OBOL, without recursion.

    Args:
        field: Candidates.
        bags: Bags.
        trials: Trials; its free rows are written to.
        rules: Rules; ``depth`` is at least 1.
        free: Candidates that may be run.
        room: Working memory.
        roots: First candidates of the paths, shape (r,).
        first: Mean, standard deviation, improvement and expected USD of each, shape (4, r).
        found: Utility and USD of the paths, written to, shape (2, r).
    """
    depth, clock = rules.depth, 0
    version, at = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
    node, state, path = np.zeros(depth + 1, np.int64), np.zeros((3, depth + 1)), np.zeros((4, depth + 1))
    for r in range(len(roots)):
        k = 0
        at[0], node[0] = roots[r], 0
        path[:, 0] = first[:, r]
        state[0, 0], state[1, 0], state[2, 0] = rules.money, trials.best, trials.worst
        room.used[at[0]] = 1
        while True:
            if k == depth or node[k] == 3:
                room.used[at[k]] = 0
                if k == 0:
                    break
                k -= 1
                path[2, k] += rules.gamma * _WEIGHTS[node[k]] * path[2, k + 1]
                path[3, k] += rules.gamma * _WEIGHTS[node[k]] * path[3, k + 1]
                node[k] += 1
                continue
            before = rules.machines if k == 0 else field.machines[at[k - 1]]
            if not _imagine(k, at[k], node[k], before, path, state, field, trials, rules):
                node[k] += 1
                continue
            clock += 1
            version[k + 1] = clock
            renew(k + 1, version, field, bags, trials, room)
            before = field.machines[at[k]]
            p, top = _choose(
                k + 1, bags.weights.shape[1], trials, field, rules, free, room,
                state[0, k + 1], before, state[1, k + 1], state[2, k + 1],
            )  # fmt: skip
            if p < 0:
                node[k] += 1
                continue
            k += 1
            i = free[p]
            at[k], node[k] = i, 0
            path[0, k], path[1, k], path[2, k] = room.mean[p], room.sd[p], top
            path[3, k] = field.rate[i] * amount(room.mean[p], room.sd[p], -1.0, rules.log) + field.fixed[i]
            if before != field.machines[i]:
                path[3, k] += field.switch[i]
            room.used[i] = 1
        found[0, r], found[1, r] = path[2, 0], path[3, 0]


@fast
def _imagine(
    k: int, j: int, node: int, before: int, path: Floats, state: Floats, field: Field, trials: Trials, rules: Rules
) -> bool:
    """Take candidate j as having run with the objective of a quadrature node; False where that cannot be.

    ``state`` holds money left, best feasible and largest objective by number of imagined runs.
    """
    y = path[0, k] + path[1, k] * _NODES[node]
    value = math.exp(min(y, 700.0)) if rules.log else y
    cost = field.rate[j] * value + field.fixed[j] + (0.0 if before == field.machines[j] else field.switch[j])
    if value <= 0.0 or cost > state[0, k]:
        return False
    trials.codes[trials.size + k] = field.codes[j]
    trials.y[trials.size + k] = (y - trials.shift) / trials.scale
    state[0, k + 1] = state[0, k] - cost
    state[1, k + 1] = min(state[1, k], value) if y <= field.limit[j] else state[1, k]
    state[2, k + 1] = max(state[2, k], value)
    return True
