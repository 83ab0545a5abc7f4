# %% [markdown]
# # Run a class
#
# *For teachers. The learners' walkthroughs begin at [Start here](00_start_here.ipynb).*
#
# **The question.** You hand out seven small programming exercises and get notebooks back: with cells lost, with loops that never end, with
# the right answer in a shape that you did not think of. Can a machine mark them so that you would stand by every mark?
#
# You will release a problem set, receive five submissions, grade them, look at what the class got wrong, and change one mark. Each command
# here is one that you also type in a terminal: `main(["grade", ...])` is `stepscope grade ...`.
#
# **Simulated here:** the students. Five notebooks are made from the answers under `tests/exercises`, which only a checkout has. Release,
# grading and pages are the real ones; everything is written to a temporary folder that goes when this kernel does.

# %%
import contextlib
import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from lab.cli.main import main

sys.path.insert(0, str(Path("..").resolve()))  # for tests.exercises
room = tempfile.TemporaryDirectory()
os.chdir(room.name)

# %% [markdown]
# ## The course file and the seed file
#
# The course file says who takes part and when a set is due. Its seed chooses one of two versions of a rule in every exercise, so that last
# year's answers do not fit. The other file holds the seed of the hidden checks. It is yours alone.

# %%
from lab.classroom.course import read_course

IDS = ["ada", "bo", "cy", "dee", "eli"]
head = '[course]\nid = "serving-2026"\nseed = "autumn"\nrules = "course"\n'
students = "".join(f'[[students]]\nid = "{one}"\nfirst_name = "{one.title()}"\n' for one in IDS)
Path("course.toml").write_text(head + students + '[due]\nps1 = "2026-12-14"\n', encoding="utf-8")
Path("seed.toml").write_text('seed = "kept from students"\n', encoding="utf-8")
FILES = ["--course", "course.toml", "--seed-file", "seed.toml"]
course = read_course("course.toml")
print({name: course.rule(name) for name in course.exercises("ps1")})

# %% [markdown]
# With `rules = "student"`, each student gets versions of their own, chosen by the seed and the student's id:

# %%
each = dataclasses.replace(course, is_per_student=True)
for student in course.students:
    print(f"{student.id:4}", " ".join(f"{name}:{each.rule(name, student.id)}" for name in course.exercises("ps1")))

# %% [markdown]
# ## Release

# %%
main(["release", "ps1", *FILES, "--out", "ps1-for-students"])
print(sorted(path.name for path in Path("ps1-for-students").iterdir()))

# %% [markdown]
# The folder holds the notebook, the project's source without hidden checks, the walkthroughs, and a page that says how to begin. Students
# install `requirements.txt` (PyTorch is not in it) and open the notebook. Before the command says "released", a *leak gate* has looked at every
# function in the folder.
#
# ## Break it on purpose: release an answer
#
# Somebody wants to be helpful and puts an answer among the files, with other names. The gate compares syntax trees, not text:

# %%
from lab.classroom.leaks import answers_folder, leaks

text = (answers_folder() / "ex03_chunk_the_prompt/solution.py").read_text(encoding="utf-8")
for ours, theirs in {"cut": "pieces_of", "chunks": "pieces", "start": "here", "length": "size"}.items():
    text = text.replace(ours, theirs)
Path("draft").mkdir(exist_ok=True)
Path("draft/hints.py").write_text(text, encoding="utf-8")
found = leaks(Path("draft"), answers_folder())
print(*found, sep="\n")

# %% [markdown]
# `stepscope release` would have stopped with that line, and left no folder.
#
# ## Five submissions come back
#
# They lie as nbgrader collects them, `STUDENT/ps1/ps1.ipynb`; `STUDENT.ipynb` would do too.

# %%
from tests.exercises.samples import hand_in_again, write_samples

for student, what in write_samples(Path("submissions"), course).items():
    print(f"{student:4} {what}")

# %% [markdown]
# ## Predict before you look
#
# Cy deleted the answer cell of `ex02` (7 points) and wrote a right function again in a cell that she added further down. How many of the 7
# points will she get? And for Bo's `ex02`, in which requests overtake others: none, all, or something between?

# %%
prediction = "?"  # for example ("0", "between"): Cy's points, then "none", "all" or "between" for Bo

# %%
with contextlib.redirect_stderr(None):  # its progress bar
    main(["grade", "submissions", *FILES, "--out", "grades"])
print(Path("grades/gradebook.csv").read_text(encoding="utf-8"))

# %%
from lab.classroom.gradebook import read_gradebook

book = read_gradebook(Path("grades"))
marks = {(e["student_id"], g["exercise"]): g for e in book["entries"] for g in e["exercises"]}
points = {key: graded["points"] for key, graded in marks.items()}
if prediction != "?":
    came = (str(points["cy", "ex02"]), {0: "none", 7: "all"}.get(points["bo", "ex02"], "between"))
    print(f"your prediction: {'right' if tuple(map(str, prediction)) == came else f'not so, it was {came}'}")
for (student, exercise), graded in marks.items():
    idea = graded["misconception"]
    for line in [*graded["notes"], *([f"a function that {idea['text']}"] if idea else [])]:
        print(f"{student:4} {exercise} {graded['points']} of {graded['max_points']}: {line}")

# %% [markdown]
# * **Cy's `ex02` has its 7 points**, and a note: the notebook is never run; an answer is looked for by its cell's id, and by its function's
#   name where the cell is gone. Her `ex03` is nowhere, and gets none.
# * **Bo's `ex02` keeps some points**: one point is one check, and a function that lets requests overtake still observes some of the rules.
# * **Dee's loop** cost Dee's own process its CPU time, and nobody else anything.
# * **Eli's answers look like no solution of ours** and get full marks: what is compared is what a function returns.
#
# `gradebook.csv` has nbgrader's columns, and grading again writes the same bytes. Interrupted, it goes on where it stopped.
#
# ## What the class got wrong

# %%
main(["report", "grades"])
from IPython.display import HTML, display

from lab.classroom.pages import misconception_figure, misconceptions
from lab.figures.page import html_table

ideas = misconceptions(book["entries"])
misconception_figure(ideas).show(renderer="plotly_mimetype")
display(HTML(html_table(ideas, "How many students' functions behave so")))

# %% [markdown]
# Both are on `grades/report/class.html`, with who solved what. *Lets others overtake* was not Bo's slip alone: that is worth five minutes of
# your next hour.
#
# ## A student's page
#
# It says of every check whether it holds, and of the first that does not, the smallest counterexample. This is Bo's:

# %%
bo = Path("grades/report/students/bo.html").read_text(encoding="utf-8")
display(HTML(bo.partition("<main>")[2].partition("</main>")[0]))

# %% [markdown]
# ## Grade one exercise again
#
# Dee hands in again, without the loop. `--only ex03 --diff` grades that exercise for everybody, says whose mark would move, and writes
# nothing. The same line tells you what a corrected *check* would do to a class.

# %%
hand_in_again(Path("submissions"), course)
with contextlib.redirect_stderr(None):
    main(["grade", "submissions", *FILES, "--out", "grades", "--only", "ex03", "--diff"])
    main(["grade", "submissions", *FILES, "--out", "grades", "--only", "ex03"])  # this one writes
after = read_gradebook(Path("grades"))

# %% [markdown]
# ## What the grader guards against, and what not
#
# Each answer runs in a process of its own, in an empty folder, with limits on CPU time, memory, file size, open files and processes. Started
# by root, it becomes *nobody* first. What was expected never enters that process; results cross as JSON, so a value whose `==` is always
# true wins nothing, and what an answer prints is no result. An answer that imports `engine` or `lab` is refused with a message.
#
# **That guards against accidents and the usual tricks, not against a determined attacker.** The process is no sandbox: it shares the
# machine's kernel with you, it can read what *nobody* (or you, when you are not root) may read, and nothing cuts it off from the network.
# So keep the seed file where others cannot read it, and grade strangers' code in a container or a virtual machine without a network:
#
# ```
# docker run --rm --network none -v "$PWD:/class" -w /class IMAGE \
#     stepscope grade submissions --course course.toml --seed-file seed.toml
# ```
#
# with an image of your own that has Stepscope installed. Even then, what the container may write (`grades`) is only as good as the container.
#
# ## Your own class
#
# In a terminal, in a folder of your own (not in the checkout; `CHECKOUT` is where that lies). Write `course.toml` and `seed.toml` as above,
# with your students, then:
#
# ```
# CHECKOUT/.venv/bin/stepscope release ps1 --course course.toml --seed-file seed.toml --out ps1-for-students
# CHECKOUT/.venv/bin/stepscope grade submissions --course course.toml --seed-file seed.toml --out grades
# CHECKOUT/.venv/bin/stepscope report grades
# ```
#
# Between the first line and the second, students get the folder `ps1-for-students` (zip it), and you put what they hand in under
# `submissions`. Keep `graded` in the folder `grades`: what is in there is not graded again. The pages in `grades/report/students` are one
# file a student, and load nothing.
#
# ## From here
#
# * The open question at the end of each set is marked by you; its rubric is in `lab/exercises/sets.toml`.
# * With nbgrader: `stepscope release ... --nbgrader-source COURSE` writes its source notebook, `stepscope sync-nbgrader grades --db
#   COURSE/gradebook.db` puts these marks into its gradebook.
# * A class larger than one machine: JupyterHub with nbgrader's exchange. All of it is in `docs/classroom.md`.
#
# You have just seen three files: `lab/classroom/leaks.py` (what a bundle may not hold), `lab/classroom/submissions.py` (finding answers in
# damaged notebooks) and `lab/exercises/callers.py` (the child process and its limits).
#
# **Exercises:** what your students see first: `stepscope check ex01`, `ex02`, `ex03`.
