"""The five verdicts of Stepmark, the same in every command."""

from enum import StrEnum


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"
