"""The words of every deferral: why a request got nothing in a step, or less than it could use.

Does not: look a reason up or fill in numbers (``reasons.py``).
Source: own words.
"""

from typing import Final

from engine.reasons import DeferralReason
from lab.reason_rows import ReasonRow, Section, Words

DEFERRALS: Final = (
    ReasonRow(
        reason=DeferralReason.NO_FREE_BLOCKS,
        clause=Words("too few free blocks to run to the end", "空闲块不足以运行到结束"),
        sentence=Words(
            "Request {request} needs {needed} {needed|block|blocks} to reach its end; {available} {available|is|are} "
            "free and not promised.",
            "请求 {request} 要运行到结束需要 {needed} 个块；空闲且未被预定的有 {available} 个。",
        ),
        fix=Words(
            "Raise KVCacheConfig.num_blocks, or lower SamplingParams.max_tokens.",
            "调高 KVCacheConfig.num_blocks，或调低 SamplingParams.max_tokens。",
        ),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.BEHIND_BLOCKED_REQUEST,
        clause=Words("an earlier request is blocked, and nobody overtakes", "更早的请求被阻塞，不允许超越"),
        sentence=Words(
            "Request {request} (needs {needed}, available {available}) waits behind a blocked one: order is kept.",
            "请求 {request}（需要 {needed}，可用 {available}）排在被阻塞的请求之后：保持先后次序。",
        ),
        fix=Words("See the request in front: its reason names a field.", "看排在前面的请求：它的原因会指出字段。"),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.TOKEN_BUDGET,
        clause=Words("the step's token budget is spent", "本步的词元预算已用完"),
        sentence=Words(
            "Request {request} needs {needed} {needed|row|rows}; {available} {available|is|are} left of this step's "
            "token budget.",
            "请求 {request} 需要 {needed} 行；本步的词元预算还剩 {available} 行。",
        ),
        fix=Words(
            'Raise SchedulerConfig.max_num_tokens, or set SchedulerConfig(chunking="fcfs").',
            '调高 SchedulerConfig.max_num_tokens，或设置 SchedulerConfig(chunking="fcfs")。',
        ),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.REQUEST_BUDGET,
        clause=Words("the step's request budget is spent", "本步的请求预算已用完"),
        sentence=Words(
            "Request {request} needs {needed} {needed|place|places} in the batch; {available} {available|is|are} left.",
            "请求 {request} 需要批次中的 {needed} 个位置；还剩 {available} 个。",
        ),
        fix=Words("Raise SchedulerConfig.max_batch_size.", "调高 SchedulerConfig.max_batch_size。"),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.CHUNK_TRUNCATED,
        clause=Words("only a part of the prompt fits into this step", "本步只容得下提示的一部分"),
        sentence=Words(
            "Request {request} has {needed} prompt {needed|token|tokens} to go; this step had room for {available}.",
            "请求 {request} 还有 {needed} 个提示词元；本步的空间为 {available} 个。",
        ),
        fix=Words(
            "None is needed: the rest follows. A larger SchedulerConfig.max_num_tokens takes more at once.",
            "不必改动：其余部分在接下来的几步中运行。更大的 SchedulerConfig.max_num_tokens 一次可以多算一些。",
        ),
        section=Section.RUNNERS,
    ),
    ReasonRow(
        reason=DeferralReason.WAITS_FOR_BATCH,
        clause=Words("static batching lets nobody join a running batch", "静态批处理不允许加入正在运行的批次"),
        sentence=Words(
            "Request {request} waits until the {needed} running {needed|request has|requests have} ended: the batch "
            "is static.",
            "请求 {request} 要等正在运行的 {needed} 个请求结束：批次是静态的。",
        ),
        fix=Words(
            'Set SchedulerConfig(capacity_policy="guaranteed_no_evict").',
            '设置 SchedulerConfig(capacity_policy="guaranteed_no_evict")。',
        ),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.NO_BLOCKS_FOR_STEP,
        clause=Words("the block pool has no room for another step", "块池容不下再一步"),
        sentence=Words(
            "Request {request} needs {needed} {needed|block|blocks} to run now; {available} {available|is|are} free "
            "beyond the reserve of those that run.",
            "请求 {request} 现在运行需要 {needed} 个块；除去为运行中的请求预留的部分，空闲的有 {available} 个。",
        ),
        fix=Words("Raise KVCacheConfig.num_blocks.", "调高 KVCacheConfig.num_blocks。"),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.PAUSED,
        clause=Words("paused, so that older requests can go on", "已暂停，让更早的请求继续"),
        sentence=Words(
            "Request {request} gives its blocks back and will be computed again: {needed} "
            "{needed|block was|blocks were} needed, {available} {available|was|were} free.",
            "请求 {request} 交还它的块，之后重新计算：当时需要 {needed} 个块，空闲的有 {available} 个。",
        ),
        fix=Words(
            'Raise KVCacheConfig.num_blocks, or set SchedulerConfig(capacity_policy="guaranteed_no_evict").',
            '调高 KVCacheConfig.num_blocks，或设置 SchedulerConfig(capacity_policy="guaranteed_no_evict")。',
        ),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
    ReasonRow(
        reason=DeferralReason.AWAITS_SHARED_PREFIX,
        clause=Words("the beginning is being computed for another request", "开头正在为另一个请求计算"),
        sentence=Words(
            "The first {needed} {needed|token|tokens} of request {request} {needed|begins|begin} another prompt, too, "
            "which is being computed; "
            "{available} {available|is|are} cached so far. It waits for the rest instead of computing it again.",
            "请求 {request} 的前 {needed} 个词元也是另一个正在计算的提示的开头；目前缓存了 {available} 个。"
            "它等待其余部分，而不是重新计算。",
        ),
        fix=Words(
            "None is needed: it saves rows. KVCacheConfig(enable_block_reuse=False) lets it in, to compute them again.",
            "不必改动：这样省下若干行。设置 KVCacheConfig(enable_block_reuse=False) 会让它进入并重新计算。",
        ),
        section=Section.SCHEDULE_TO_INPUTS,
    ),
)
