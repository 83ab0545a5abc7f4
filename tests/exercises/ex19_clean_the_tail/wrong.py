"""Wrong in ways that people are."""


def _end(bucket, previous, rule=None):
    return bucket if (rule or RULE) == "a" else max(bucket, previous)


def nobody_reads_it(buffer, live, bucket, previous):
    """leaves the memory as it was, as if nobody read those rows"""


def only_what_was_written_before(buffer, live, bucket, previous):
    """clears only what the step before has written, and trusts the rest"""
    buffer[..., live : min(bucket, previous)] = 0


def first_axis(buffer, live, bucket, previous):
    """takes the first axis for the rows"""
    buffer[live : _end(bucket, previous)] = 0


def everything(buffer, live, bucket, previous):
    """clears the live rows too"""
    buffer[..., : _end(bucket, previous)] = 0


def to_the_end(buffer, live, bucket, previous):
    """clears to the end of the buffer, far beyond what a graph reads"""
    buffer[..., live:] = 0


def repeats_the_last_row(buffer, live, bucket, previous):
    """repeats the last live row, which is somebody's token, instead of clearing"""
    end = _end(bucket, previous)
    if end > live:
        buffer[..., live:end] = buffer[..., live - 1 : live] if live else 0


def one_row_short(buffer, live, bucket, previous):
    """begins one row too late"""
    buffer[..., live + 1 : _end(bucket, previous)] = 0


def other_end(buffer, live, bucket, previous):
    """stops where the other version of the rule does"""
    buffer[..., live : _end(bucket, previous, "b" if RULE == "a" else "a")] = 0
