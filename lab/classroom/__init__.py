"""The classroom: release problem sets, grade submissions, report on a class.

Does not: judge one answer (``lab/exercises``).
"""
