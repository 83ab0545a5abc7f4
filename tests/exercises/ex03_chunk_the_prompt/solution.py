"""The solution of *Chunk the prompt*."""


def cut(prompt, cached, rows, unit):
    chunks = []
    start = cached
    while start < prompt:
        length = prompt - start
        if length > rows:
            length = (start + rows) // unit * unit - start if RULE == "a" else rows // unit * unit
        chunks.append([start, length, start + length == prompt])
        start += length
    return chunks
