"""What the stepper says in a lesson: parts that are hidden until asked for, the teacher's notes, large type, cells.

Part of the one string table, English and Chinese side by side; ``strings.py`` joins the parts.

Does not: choose what to hide (``masks.py``), or hold a teacher's words.
"""

from typing import Final

LESSON_WORDS: Final[dict[str, tuple[str, str]]] = {
    "mask.name": ("Hidden until you ask", "提问之前隐藏"),
    "mask.all": ("Show all of this step", "显示本步全部"),
    "mask.again": ("Hide again", "重新隐藏"),
    "mask.ever": ("In every step", "每一步都显示"),
    "mask.path": ("path", "路径"),
    "mask.reason": ("reason", "原因"),
    "mask.bucket": ("bucket", "桶"),
    "mask.key": ("key", "图键"),
    "mask.checklist": ("checklist", "检查清单"),
    "mask.deferrals": ("who waits", "谁在等待"),
    "mask.padding": ("padding", "填充"),
    "mask.next": ("what comes next", "接下来的步骤"),
    "mask.panel": ("Hidden until you ask: press m, or a button above.", "提问之前隐藏：按 m，或按上方的按钮。"),
    "mask.tip": ("Step {step}: hidden until you ask", "第 {step} 步：提问之前隐藏"),
    "mask.say": ("Step {step}: {what}.", "第 {step} 步：{what}。"),
    "mask.some": ("part of it is hidden until you ask", "有一部分在提问之前隐藏"),
    "notes.name": ("The teacher's notes", "教师的说明"),
    "bar.large": ("Large type", "大字"),
    "key.mask": ("show or hide what the teacher hid in this step", "显示或隐藏教师在本步隐藏的内容"),
    "key.large": ("large type, for a projector", "大字（投影）"),
    "predict.which": ("Which cell", "哪个单元"),
    "predict.list": ("list", "列表"),
    "predict.place": ("place", "位置"),
    "predict.column": ("block", "第几块"),
    "predict.value": ("what it will hold", "它将是什么值"),
    "predict.give": ("Answer", "回答"),
    "predict.cell_none": ("no such cell", "没有这个单元"),
    "predict.none": ("none", "无"),
    "predict.untold": (
        "What {cell} held was not recorded; choose another cell.",
        "没有记录 {cell} 的值；请选择另一个单元。",
    ),
}
