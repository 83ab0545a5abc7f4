from lab.classroom.gradebook import moves

assert len(found) == 1
assert "pieces_of does what the solution of ex03" in str(found[0])
assert Path("ps1-for-students/ps1/ps1.ipynb").is_file()
assert Path("ps1-for-students/README.md").is_file()
assert "torch" not in Path("ps1-for-students/requirements.txt").read_text(encoding="utf-8")
assert len({tuple(each.rule(name, s.id) for name in course.exercises("ps1")) for s in course.students}) > 1
full = {key: graded["max_points"] for key, graded in marks.items()}
assert len(points) == 35
lost = {key: points[key] for key in points if points[key] < full[key]}
assert set(lost) == {("bo", "ex01"), ("bo", "ex02"), ("cy", "ex03"), ("dee", "ex02"), ("dee", "ex03")}
assert lost["cy", "ex03"] == lost["dee", "ex03"] == 0
assert 0 < lost["bo", "ex02"] < 7
assert lost["dee", "ex02"] == lost["bo", "ex02"]
assert points["cy", "ex02"] == 7
assert "found in another cell" in marks["cy", "ex02"]["notes"][0]
assert "too slow" in marks["dee", "ex03"]["notes"][0]
assert [(row["wrong_idea"], row["students"]) for row in ideas] == [("lets others overtake", 2), ("drafts alone", 1)]
[bar] = misconception_figure(ideas).data
assert list(bar.x) == [2, 1]
assert "Your function skips a request that does not fit" in bo
assert Path("grades/report/class.html").stat().st_size > 1000
assert moves(book, after["entries"]) == ["dee  ex03  0 -> 7"]
written = [Path("grades", name).read_bytes() for name in ("gradebook.json", "gradebook.csv")]
with contextlib.redirect_stderr(None), contextlib.redirect_stdout(None):
    main(["grade", "submissions", *FILES, "--out", "grades"])
assert written == [Path("grades", name).read_bytes() for name in ("gradebook.json", "gradebook.csv")]
