"""The five verdicts of Stepmark, which every command uses."""

from enum import StrEnum


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"
