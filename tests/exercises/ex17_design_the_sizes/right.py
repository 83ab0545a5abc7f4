"""Right in other ways."""

import functools
import itertools


def by_recursion(histogram, limit, most, graph_cost, align):
    unit = 1 if RULE == "a" else align
    sizes = [size for size in range(1, limit) if size % unit == 0]

    @functools.cache
    def best(last, left):
        options = [(sum(n * (limit - b) for b, n in histogram if b > last) + graph_cost, (limit,))]
        if left > 1:
            for size in sizes:
                if size > last:
                    cost, rest = best(size, left - 1)
                    waste = sum(n * (size - b) for b, n in histogram if last < b <= size)
                    options.append((cost + waste + graph_cost, (size, *rest)))
        return min(options)

    return best(0, most)[1]


def by_trying_all(histogram, limit, most, graph_cost, align):
    unit = align if RULE == "b" else 1
    useful = sorted({-(-batch // unit) * unit for batch, _ in histogram if -(-batch // unit) * unit < limit})

    def cost(sizes):
        return graph_cost * len(sizes) + sum(n * (next(s for s in sizes if s >= b) - b) for b, n in histogram)

    lists = (
        [*chosen, limit] for k in range(min(most, len(useful) + 1)) for chosen in itertools.combinations(useful, k)
    )
    return min(lists, key=cost)


def from_the_top(histogram, limit, most, graph_cost, align):
    unit = align if RULE == "b" else 1
    useful = [0, *sorted({-(-b // unit) * unit for b, _ in histogram if -(-b // unit) * unit < limit}), limit]
    inf = float("inf")
    table = [[inf] * len(useful) for _ in range(most + 1)]
    back = {}
    table[0][0] = 0
    for k in range(1, most + 1):
        for j in range(1, len(useful)):
            for i in range(j):
                waste = sum(n * (useful[j] - b) for b, n in histogram if useful[i] < b <= useful[j])
                cost = table[k - 1][i] + waste + graph_cost
                if cost < table[k][j]:
                    table[k][j] = cost
                    back[k, j] = i
    j = len(useful) - 1
    k = min(range(1, most + 1), key=lambda count: table[count][j])
    out = []
    while k:
        out.append(useful[j])
        j, k = back[k, j], k - 1
    return out[::-1]
