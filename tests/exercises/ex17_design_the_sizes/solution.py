"""The solution of *Design the list of sizes*."""


def choose_sizes(histogram, limit, most, graph_cost, align):
    unit = align if RULE == "b" else 1
    candidates = [*range(unit, limit, unit), limit]
    best = {(0, 0): (0, [])}
    for size in candidates:
        for (used, last), (cost, sizes) in list(best.items()):
            if used == most:
                continue
            waste = sum(steps * (size - batch) for batch, steps in histogram if last < batch <= size)
            found = (cost + waste + graph_cost, [*sizes, size])
            key = (used + 1, size)
            if key not in best or found < best[key]:
                best[key] = found
    return min(entry for (_, last), entry in best.items() if last == limit)[1]
