"""Right in other ways."""


def by_recursion(prompt, cached, rows, unit):
    left = prompt - cached
    if left <= rows:
        return [[cached, left, True]]
    over = (cached + rows) % unit if RULE == "a" else rows % unit
    length = rows - over
    return [[cached, length, False], *by_recursion(prompt, cached + length, rows, unit)]


def by_edges(prompt, cached, rows, unit):
    edges = [cached]
    while prompt - edges[-1] > rows:
        base = 0 if RULE == "a" else edges[-1]
        edge = edges[-1] + rows
        while (edge - base) % unit:
            edge -= 1
        edges.append(edge)
    edges.append(prompt)
    return [[a, b - a, b == prompt] for a, b in zip(edges, edges[1:], strict=False)]


def token_by_token(prompt, cached, rows, unit):
    chunks, begin = [], cached
    while begin < prompt:
        end = begin
        for candidate in range(begin + 1, min(prompt, begin + rows) + 1):
            measure = candidate if RULE == "a" else candidate - begin
            if candidate == prompt or measure % unit == 0:
                end = candidate
        chunks.append((begin, end - begin, end == prompt))
        begin = end
    return chunks
