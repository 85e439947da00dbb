"""The inner loops of OBOL: trees, expected improvement and lookahead over arrays.

They stay in one file (but for `bitsets`) because numba renews a cached function when its own file changes, and not when
a file that it calls changes. Import this module inside functions: it loads numba.

Candidates and trials are rows of small integers, the levels of their columns. A set of candidates is a row of 64-bit
words, so that a split of a node is one AND a word. The runs that lookahead imagines are appended to the trials. A tree
whose bag holds none of the newest imagined runs is the same tree as before, and is grown once only.
"""

from __future__ import annotations

import math

import numpy as np

from tradewind.searcher.obol.arrays import (
    BagArrays,
    Bytes,
    CandidateArrays,
    Floats,
    Ints,
    LookaheadRules,
    TrialArrays,
    Words,
    Workspace,
)
from tradewind.searcher.obol.bitsets import add
from tradewind.utils.jit import njit, njit_inline

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


# ---------------------------------------------------------------------- trees


@njit_inline
def _split(
    orders: Bytes, node: int, tries: int, spread: float, weight: float, total: float, start: int, end: int,
    bag: Floats, product: Floats, index: Ints, codes: Bytes, heap: Floats, heaps: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """The column that splits a node best, and the levels on both sides of the split; -1 where none gains."""
    gain, feature, below, above = _SAME * spread, -1, 0, 0
    if end - start == 2:
        # Whatever tells two trials apart gains all there is to gain.
        for a in range(orders.shape[1]):
            f = orders[node, a]
            c, high = codes[index[start], f], codes[index[start + 1], f]
            if c != high:
                return f, min(c, high), max(c, high)
        return feature, below, above
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


@njit
def _grow(
    bag: Floats, orders: Bytes, tries: int, size: int, codes: Bytes, y: Floats,
    everyone: Words, values: Floats, masks: Words, product: Floats,
    index: Ints, stack: Ints, sets: Words, heap: Floats, heaps: Floats, sums: Floats, squares: Floats,
) -> None:  # fmt: skip
    """Grow one random tree and add its prediction, and the square, for every candidate."""
    count, least = 0, 0.0
    for i in range(size):
        if bag[i] > 0.0:
            index[count] = i
            count += 1
            product[i] = bag[i] * y[i]
    stack[0, 0], stack[0, 1] = 0, count
    for k in range(sets.shape[1]):
        sets[0, k] = everyone[k]
    top, node = 1, 0
    while top > 0:
        top -= 1
        start, end = stack[top, 0], stack[top, 1]
        if end - start == 1:
            i = index[start]
            add(sets, top, product[i] / bag[i], sums, squares)
            continue
        weight, total, square = 0.0, 0.0, 0.0
        for p in range(start, end):
            i = index[p]
            weight += bag[i]
            total += product[i]
            square += product[i] * y[i]
        spread = square - total * total / weight
        least = 1e-3 * spread / weight if end - start == count else least
        feature, below, above = -1, 0, 0
        if weight >= 2.0 and spread > 1e-12 and spread >= least * weight:
            feature, below, above = _split(
                orders, node, tries, spread, weight, total, start, end, bag, product, index, codes, heap, heaps
            )
            node += 1
        if feature < 0:
            add(sets, top, total / weight, sums, squares)
            continue
        # A level in the middle goes to the right, as one that equals the threshold does.
        middle = 0.5 * (values[feature, below] + values[feature, above]) - _SAME
        cut = below
        while cut + 1 < above and values[feature, cut + 1] < middle:
            cut += 1
        p = start
        for q in range(start, end):
            # Without a branch, which could not be predicted.
            i, here = index[q], index[p]
            left = codes[i, feature] <= cut
            index[p] = i if left else here
            index[q] = here if left else i
            p += left
        for k in range(sets.shape[1]):
            mask = masks[feature, cut, k]
            sets[top + 1, k] = sets[top, k] & mask
            sets[top, k] = sets[top, k] & ~mask
        stack[top, 0], stack[top, 1] = p, end
        stack[top + 1, 0], stack[top + 1, 1] = start, p
        top += 2


@njit
def renew(
    k: int, version: Ints, field: CandidateArrays, bags: BagArrays, trials: TrialArrays, workspace: Workspace
) -> None:
    """Bring the sums for k imagined runs up to date: only trees whose bags hold a changed run are grown.

    ``version[g]`` says which values the first g imagined runs have.
    """
    for g in range(k + 1):
        if workspace.stamp[k, g] == version[g]:
            continue
        workspace.stamp[k, g] = version[g]
        sums, squares = workspace.sums[k, g], workspace.squares[k, g]
        if g > 0:
            sums[:] = workspace.sums[k, g - 1]
            squares[:] = workspace.squares[k, g - 1]
        for t in range(bags.weights.shape[1]):
            if bags.newest[k, t] == g - 1:
                _grow(
                    bags.weights[k, t], bags.orders[k, t], bags.tries, trials.size + k, trials.codes, trials.y,
                    field.everyone, field.values, field.masks, workspace.product,
                    workspace.places, workspace.stack, workspace.sets, workspace.weights, workspace.totals,
                    sums, squares,
                )  # fmt: skip


# ---------------------------------------------------------------------- what a candidate is worth


@njit
def _below(z: float) -> float:
    """P(Z ≤ z) of a standard normal."""
    return 0.5 * math.erfc(-z * _ROOT_HALF)


@njit
def moments(
    total: float, square: float, trees: int, shift: float, scale: float, rules: LookaheadRules
) -> tuple[float, float]:
    """Mean and standard deviation of a candidate over the trees."""
    mean = total / trees
    variance = (square - total * mean) / (trees - 1) if trees > 1 else 0.0
    mean = shift + scale * mean
    agreed = math.log1p(rules.agreement) if rules.log else rules.agreement * abs(mean)
    wide = scale * math.sqrt(max(variance, 0.0))
    return mean, wide if variance > _AGREE else agreed


@njit
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


@njit
def amount(mean: float, sd: float, deviations: float, log: bool) -> float:
    """The objective's mean (``deviations`` negative), or its quantile so many standard deviations up."""
    if log:
        exponent = mean + (0.5 * sd * sd if deviations < 0.0 else deviations * sd)
        return math.exp(min(exponent, 700.0))
    return mean if deviations < 0.0 else mean + deviations * sd


@njit
def _stand_in(worst: float, widest: float, log: bool) -> float:
    """The objective to be beaten while nothing is feasible: the largest objective and three standard deviations."""
    return worst * math.exp(min(3.0 * widest, 700.0)) if log else worst + 3.0 * widest


@njit
def _bounds(mark: float, factor: float, field: CandidateArrays, workspace: Workspace) -> int:
    """Upper bounds of the improvement of the candidates, where not negative; the place of the largest loose one.

    The loose bound is EI ≤ max(best − μ, 0) + 0.3990σ; for a logarithm 1 − x ≤ −ln x carries it over. The other one
    divides the second term by (1 + z²)(1 + z²/2 + z⁴/8) with z = (best − μ)/σ, since 1 − Φ(z) ≥ zφ(z)/(1 + z²) and
    e^y ≥ 1 + y + y²/2; and as Φ(s) ≤ e^(−s²/2)/2 for s < 0, so does it bound the chance of meeting the deadline.
    """
    mean, sd, bound = workspace.mean, workspace.sd, workspace.bound
    for j in range(len(mean)):
        loose = (max(mark - mean[j], 0.0) + 0.3990 * sd[j]) * factor * field.chance[j]
        bound[j] = loose if bound[j] >= 0.0 else -1.0
    first = int(np.argmax(bound))
    for j in range(len(mean)):
        wide = sd[j] + 1e-30
        z, s = ((mark - mean[j]) / wide) ** 2, min((field.limit[j] - mean[j]) / wide, 0.0)
        tail, s = (1.0 + z) * (1.0 + 0.5 * z + 0.125 * z * z), s * s
        share = (0.5001 if s > 0.0 else 1.0) / (1.0 + 0.5 * s + 0.125 * s * s)
        tight = (max(mark - mean[j], 0.0) + 0.3990 * sd[j] / tail) * share * factor * field.chance[j]
        bound[j] = tight if bound[j] >= 0.0 else -1.0
    return first


@njit
def _allow(
    k: int, trees: int, trials: TrialArrays, field: CandidateArrays, rules: LookaheadRules, workspace: Workspace,
    money: float, machines: int,
) -> None:  # fmt: skip
    """Mean and standard deviation of the candidates; a bound of 0 where the money pays, and of -1 elsewhere."""
    sums, squares, mean, sd, bound = (
        workspace.sums[k, k],
        workspace.squares[k, k],
        workspace.mean,
        workspace.sd,
        workspace.bound,
    )
    # Short loops without branches, so that several candidates are taken at once.
    for j in range(len(mean)):
        mean[j], sd[j] = moments(sums[j], squares[j], trees, trials.shift, trials.scale, rules)
    for j in range(len(mean)):
        dear = field.rate[j] * amount(mean[j], sd[j], rules.quantile, rules.log) + field.fixed[j]
        dear += field.switch[j] if machines != field.machines[j] else 0.0
        bound[j] = 0.0 if dear <= money and not workspace.used[j] else -1.0


@njit
def _choose(
    k: int, trees: int, trials: TrialArrays, field: CandidateArrays, rules: LookaheadRules, workspace: Workspace,
    money: float, machines: int, best: float, worst: float,
) -> tuple[int, float]:  # fmt: skip
    """The best candidate that the money pays, and its constrained expected improvement; -1 where the money pays none.

    Bounds say which candidates need no look. The choice is the one that evaluating all would make.
    """
    _allow(k, trees, trials, field, rules, workspace, money, machines)
    mean, sd, bound = workspace.mean, workspace.sd, workspace.bound
    if best == math.inf:
        best = _stand_in(worst, np.max(sd * (1.0 - workspace.used)), rules.log)
    mark = math.log(best) if rules.log and best > 0.0 else best
    first = _bounds(mark, best if rules.log else 1.0, field, workspace)
    chosen, high = first, np.argmax(bound)
    if bound[high] < 0.0:
        return -1, 0.0
    top = worth(mean[first], sd[first], best, field.limit[first], rules.log) * field.chance[first]
    least = worth(mean[high], sd[high], best, field.limit[high], rules.log) * field.chance[high] * (1.0 - 1e-6)
    for j in range(len(bound)):
        if bound[j] >= least and bound[j] >= top * (1.0 - _SAME) and j != first:
            value = worth(mean[j], sd[j], best, field.limit[j], rules.log) * field.chance[j]
            if value > top * (1.0 + _SAME) or (value >= top * (1.0 - _SAME) and j < chosen):
                chosen, top = j, value
    return chosen, top


# ---------------------------------------------------------------------- lookahead


@njit
def judge(
    field: CandidateArrays, trees: int, trials: TrialArrays, rules: LookaheadRules, free: Ints, workspace: Workspace
) -> tuple[Floats, float]:
    """Predict the candidates that may be run, from the sums of `renew` for no imagined run.

    Returns:
        Mean, standard deviation, constrained expected improvement, expected USD and the quantile of the USD, as rows
        of shape (5, len(free)); and the objective that was to be beaten.
    """
    found = np.empty((5, len(free)))
    widest = 0.0
    for p in range(len(free)):
        j = free[p]
        mean, sd = moments(
            workspace.sums[0, 0, j], workspace.squares[0, 0, j], trees, trials.shift, trials.scale, rules
        )
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


@njit
def look_ahead(
    field: CandidateArrays, bags: BagArrays, trials: TrialArrays, rules: LookaheadRules, workspace: Workspace,
    roots: Ints, first: Floats, found: Floats,
) -> None:  # fmt: skip
    """Utility and cost of the paths that begin at some candidates: algorithm 3 of OBOL, without recursion.

    Args:
        field: Candidates, all of which may be run.
        bags: Random draws of the trees.
        trials: Measured trials; the free rows are written to.
        rules: Rules of the lookahead; ``depth`` is at least 1.
        workspace: Working memory of this thread.
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
        workspace.used[at[0]] = 1
        while True:
            if k == depth or node[k] == 3:
                workspace.used[at[k]] = 0
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
            renew(k + 1, version, field, bags, trials, workspace)
            before = field.machines[at[k]]
            p, top = _choose(
                k + 1, bags.weights.shape[1], trials, field, rules, workspace,
                state[0, k + 1], before, state[1, k + 1], state[2, k + 1],
            )  # fmt: skip
            if p < 0:
                node[k] += 1
                continue
            k += 1
            at[k], node[k] = p, 0
            path[0, k], path[1, k], path[2, k] = workspace.mean[p], workspace.sd[p], top
            path[3, k] = field.rate[p] * amount(workspace.mean[p], workspace.sd[p], -1.0, rules.log) + field.fixed[p]
            path[3, k] += 0.0 if before == field.machines[p] else field.switch[p]
            workspace.used[p] = 1
        found[0, r], found[1, r] = path[2, 0], path[3, 0]


@njit
def _imagine(
    k: int,
    j: int,
    node: int,
    before: int,
    path: Floats,
    state: Floats,
    field: CandidateArrays,
    trials: TrialArrays,
    rules: LookaheadRules,
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
