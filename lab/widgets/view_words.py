"""What the stepper says in the views beside the stages: block ledger, reuse tree, overlap; and of verify rows.

Part of the one string table, English and Chinese side by side; ``strings.py`` joins the parts.

Does not: choose what to say, or hold logic.
"""

from typing import Final

_LEDGER: Final[dict[str, tuple[str, str]]] = {
    "stage.10": ("Blocks", "块账本"),
    "stage.10.what": (
        "Every block of the pool, when this step has got its own: who holds it, and what is kept for later.",
        "本步得到块之后，块池中的每一块：谁持有它，哪些留待以后使用。",
    ),
    "stage.11": ("Reuse tree", "复用树"),
    "stage.11.what": (
        "What full blocks hold, as a tree: a prompt that begins like a path takes its blocks.",
        "写满的块按内容排成的树：开头与某条路径相同的提示直接使用这些块。",
    ),
    "stage.12": ("Overlap", "重叠"),
    "stage.12.what": (
        "What the host did in which order, and while which step was on the device.",
        "主机按什么顺序做了什么，以及当时哪一步在设备上。",
    ),
    "blk.say": (
        "{held} of {total} blocks are held ({shared} shared), {cached} cached, {free} free; on the host: {host}.",
        "{total} 块中 {held} 块在块表里（{shared} 块共用），{cached} 块已缓存，{free} 块空闲；主机上：{host}。",
    ),
    "blk.host_pool": ("The host's pool", "主机块池"),
    "blk.host_map": ("{held} of {total} host blocks keep something", "{total} 个主机块中有 {held} 个保存着内容"),
    "blk.old": (
        "This trace was recorded before the ledger was: only the tables of running requests are known.",
        "这个轨迹录制时还没有账本：只知道运行中请求的块表。",
    ),
    "blk.new": ("added now", "本步新增"),
    "blk.held": ("held", "持有"),
    "blk.shared": ("shared", "共用"),
    "blk.cached": ("cached", "已缓存"),
    "blk.free": ("free", "空闲"),
    "blk.pad": ("of a dummy", "属于填充请求"),
    "blk.on_host": ("on the host", "在主机上"),
    "copy.DEVICE": ("beginning of a block, for reuse", "块的开头，用于复用"),
    "copy.OFFLOAD": ("device to host (evicted)", "设备到主机（被逐出）"),
    "copy.ONBOARD": ("host to device (matched)", "主机到设备（匹配到）"),
    "cap.owners": ("Who holds what", "谁持有什么"),
    "cap.copies": ("Blocks copied before the forward", "前向之前拷贝的块"),
    "cap.tree": ("Paths of the tree; a chain without branches is one line", "树的路径；没有分支的链为一行"),
    "col.shared": ("shared", "共用"),
    "col.ids": ("block ids", "块编号"),
    "col.copy": ("copy", "拷贝"),
    "col.from": ("from", "从"),
    "col.to": ("to", "到"),
    "col.tokens": ("tokens", "词元"),
    "col.content": ("begins with", "开头"),
    "col.nblocks": ("blocks", "块数"),
    "col.depth": ("depth", "深度"),
    "col.where": ("where", "状态"),
    "tree.say": (
        "{n} full {n|block|blocks}: {held} in use, {cached} cached, {host} on the host; now +{fresh}, −{removed}.",
        "{n} 个写满的块：{held} 个使用中，{cached} 个已缓存，{host} 个在主机上；本步 +{fresh}、−{removed}。",
    ),
    "tree.empty": ("The tree is empty: no block is full and final yet.", "树是空的：还没有写满并生效的块。"),
    "tree.note": (
        "A block is named by its tokens and all before. Solid: in use; dotted: cached; dashed: on the host; +: new.",
        "块由它的词元和之前的全部词元命名。实线：使用中；点线：已缓存；虚线：在主机上；+：新进入。",
    ),
    "tree.held": ("in use: {who}", "使用中：{who}"),
    "tree.cached": ("cached", "已缓存"),
    "tree.host": ("on the host", "在主机上"),
    "tree.host_block": ("host {n}", "主机 {n}"),
}

_OVERLAP: Final[dict[str, tuple[str, str]]] = {
    "ovl.host": ("host", "主机"),
    "ovl.device": ("device", "设备"),
    "ovl.both": ("host → device", "主机 → 设备"),
    "ovl.layout": ("lay out {step}", "准备 {step}"),
    "ovl.launch": ("launch {step}", "启动 {step}"),
    "ovl.read": ("read {step}", "读取 {step}"),
    "ovl.commit": ("commit {step}", "提交 {step}"),
    "ovl.open": ("step {step}: handed over, not read yet", "第 {step} 步：已交给设备，尚未读取"),
    "does.layout": ("schedules, reserves, packs and copies step {step}", "调度、预留、打包、写入第 {step} 步"),
    "does.launch": ("hands the forward of step {step} over", "把第 {step} 步的前向交给设备"),
    "does.read": ("waits for the samples of step {step} and reads them", "等待并读取第 {step} 步的采样"),
    "does.commit": ("makes step {step} final", "使第 {step} 步生效"),
    "ovl.say_open": (
        "Step {step} was laid out and handed over before the samples of step {before} were read.",
        "第 {step} 步在读取第 {before} 步的采样之前就已准备好并交给设备。",
    ),
    "ovl.say_closed": (
        "Step {step} was laid out when every sample had been read: the device waits while the host prepares.",
        "第 {step} 步在所有采样都读取之后才准备：主机准备时设备在等待。",
    ),
    "ovl.unknown": (
        "This trace was recorded before the order of steps was.",
        "这个轨迹录制时还没有记录步骤的先后次序。",
    ),
    "ovl.order": (
        "Order only: from left to right what came after what. Widths are no times; no device event measured any.",
        "只表示先后：从左到右依次发生。宽度不是时间；没有设备事件测量时间。",
    ),
    "ovl.timed": (
        "Lower strip, to scale: forwards as CUDA events measured them; between them the device waited {gaps}.",
        "下方按比例：CUDA 事件测得的前向；其间设备等待 {gaps}。",
    ),
    "ovl.cpu": (
        "On the CPU the device lane is simulated: one processor does both, one after the other.",
        "在 CPU 上设备这一行是模拟的：同一个处理器先后做两件事。",
    ),
    "cap.events": ("What the host did, in order, around this step", "本步前后主机依次做的事"),
    "cap.late": (
        "Tokens that were on the device when this step was laid out",
        "准备本步时还在设备上的词元",
    ),
    "col.lane": ("lane", "行"),
    "col.what": ("what", "做什么"),
    "col.sampled_by": ("sampled by step", "由第几步采样"),
    "say.unread": (
        "Laid out before the samples of step {before} were read.",
        "在读取第 {before} 步的采样之前就已准备好。",
    ),
    "rows.late": ("(late: of step {step})", "（当时未读：第 {step} 步）"),
    "rows.late_say": (
        "{n} {n|token was|tokens were} on the device when this was laid out, and filled in when the host read it.",
        "准备时有 {n} 个词元还在设备上；主机读取之后才填入这里。",
    ),
    "j.wasted": ("its token is dropped: it had ended in the step before", "词元被丢弃：它在上一步已经结束"),
}

_VERIFY: Final[dict[str, tuple[str, str]]] = {
    "what.verify": (
        "{n} {n|request verifies|requests verify} {k} {k|draft|drafts} each",
        "{n} 个请求各验证 {k} 个草稿",
    ),
    "say.verified": (
        "{n} of {of} drafts were accepted; the KV of the other {back} is rewound.",
        "{of} 个草稿中接受了 {n} 个；其余 {back} 个的 KV 被回退。",
    ),
    "say.verified.all": ("All {of} {of|draft was|drafts were} accepted.", "{of} 个草稿全部被接受。"),
    "say.cached": (
        "{who} found {n} prompt {n|token|tokens} in the cache.",
        "{who} 在缓存中找到 {n} 个提示词元。",
    ),
    "say.paused": (
        "{who} paused: the blocks go back, the tokens will be computed again.",
        "{who} 被暂停：归还块，之后重新计算词元。",
    ),
    "chg.OFFLOAD": ("{n} {n|block|blocks} to the host", "{n} 块移到主机"),
    "chg.ONBOARD": ("{n} {n|block|blocks} from the host", "{n} 块从主机取回"),
    "src.draft": ("draft, copied by the host", "草稿，由主机拷贝"),
    "rows.verify": (
        "Verify rows: each of {n} {n|request|requests} runs its newest token and {k} drafts behind it.",
        "验证行：{n} 个请求各运行最新词元和其后的 {k} 个草稿。",
    ),
    "sch.verifies": ("output token {n}, and {k} drafts", "第 {n} 个输出词元，加 {k} 个草稿"),
    "sch.asked": (
        "Fitted again after the cache was asked. Scheduled at first: {who}.",
        "询问缓存之后重新安排。最初的安排：{who}。",
    ),
    "smp.draft": ("draft accepted", "草稿被接受"),
    "smp.accepted": ("{n} of {k} drafts accepted", "{k} 个草稿接受 {n} 个"),
    "com.rewound": (
        "Rewound behind a rejected draft (KV positions): {who}.",
        "在被拒绝的草稿之后回退（KV 位置）：{who}。",
    ),
    "j.sch_verify": (
        "{n} rows at position {start}: its token and {k} drafts",
        "位置 {start} 起的 {n} 行：词元和 {k} 个草稿",
    ),
}

VIEW_WORDS: Final[dict[str, tuple[str, str]]] = {**_LEDGER, **_OVERLAP, **_VERIFY}
